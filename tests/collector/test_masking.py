"""What is told of variables and addresses, and what is not."""

import pytest

from collector.masking import hidden_variables, is_recorded, mask, mask_fingerprint


@pytest.mark.parametrize(
    "name",
    [
        "TORCHINDUCTOR_MAX_AUTOTUNE",
        "TORCHDYNAMO_DISABLE",
        "CUDA_LAUNCH_BLOCKING",
        "PYTORCH_CUDA_ALLOC_CONF",
        "TORCH_LOGS",
    ],
)
def test_a_variable_that_matters_is_recorded(name):
    assert is_recorded(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "PYTORCH_GITHUB_TOKEN",
            "TORCH_HUB_PASSWORD",
            "TRITON_REGISTRY_KEY",
            "TORCH_INDEX_URL",
            "CUDA_VISIBLE_DEVICES",
        ),
        *("TORCHINDUCTOR_REMOTE_CACHE_TOKEN", "TORCH_COMPILE_STICKY_PGO_KEY", "TORCHINDUCTOR_my_Secret"),
        *("TORCHDYNAMO_AUTH", "TORCH_COMPILE_CREDENTIALS", "TORCHINDUCTOR_PASSWD", "HOME", "TORCH_OF_MY_OWN"),
    ],
)
def test_a_secret_or_unknown_variable_is_not_recorded(name):
    assert not is_recorded(name)
    assert hidden_variables({f"env.{name}": "1", "torch": "2.13"}) == (name,)
    assert mask_fingerprint({f"env.{name}": "1", "torch": "2.13"}) == {"torch": "2.13"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("https://user:SECRET@host/simple", "https://host/simple"),
        ("see https://SECRET@github.com/o/r.git and b@c", "see https://github.com/o/r.git and b@c"),
        ("postgresql://me:SE@CRET@host:5432/db", "postgresql://host:5432/db"),
        ("git+ssh://git:SECRET@host/r", "git+ssh://host/r"),
        ("https:/user:SECRET@host/a/path", "https:/host/a/path"),
        ("https://host/x?a=1&access_token=SECRET&b=2", "https://host/x?a=1&access_token=***&b=2"),
    ],
)
def test_an_address_is_told_without_its_user_and_password(text, told):
    assert mask(text) == told
    assert mask({"a": [{text: text}]}) == {"a": [{told: told}]}
    assert "SECRET" not in told


@pytest.mark.parametrize("text", ["main@abc", "/a/b@c", "https://host/a@b", "git@host:o/r", "a: b@c", "x/y://"])
def test_what_has_no_password_stays_as_it_is(text):
    assert mask(text) == text
