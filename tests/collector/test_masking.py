"""What is told of variables and addresses, and what is not."""

import json
import re
import sysconfig
from urllib.parse import quote

import pytest
import torch

from collector import masking
from collector.failures import reason_of
from collector.process.cell_process import hide_paths
from collector.vocabulary import Failure, Measurement, Stage, Status
from tests.collector.processes import ROOT, cell

PACKAGES = sysconfig.get_path("purelib")


@pytest.mark.parametrize(
    "name",
    [
        *("PYTORCH_GITHUB_TOKEN", "TORCH_HUB_PASSWORD", "TRITON_REGISTRY_KEY", "TORCH_INDEX_URL"),
        "CUDA_VISIBLE_DEVICES",
        *("TORCHINDUCTOR_REMOTE_CACHE_TOKEN", "TORCH_COMPILE_CREDENTIALS", "TORCHINDUCTOR_PASSWD"),
        *("TORCH_COMPILE_STICKY_PGO_KEY", "TORCHINDUCTOR_my_Secret", "TORCHDYNAMO_AUTH", "HOME", "TORCH_OF_MY_OWN"),
    ],
)
def test_a_secret_or_unknown_variable_is_not_recorded(name):
    assert masking.is_recorded("TORCHINDUCTOR_MAX_AUTOTUNE")
    assert not masking.is_recorded(name)
    assert masking.hidden_variables({f"env.{name}": "1", "torch": "2.13"}) == (name,)
    assert masking.mask_fingerprint({f"env.{name}": "1", "torch": "2.13"}) == {"torch": "2.13"}


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
    assert masking.mask(text) == told
    assert masking.mask({"a": [{text: text}]}) == {"a": [{told: told}]}
    assert "SECRET" not in told


@pytest.mark.parametrize(
    "text",
    [
        "401 for ghp_SECRETabcdefghijklmnopqrst1 today",
        *("hf_SECRETabcdefghijklmnopqrstuvwxyz12", "AKIASECRETABCDEF1234"),
        *("glpat-SECRETabcdefghijklm", "xoxb-SECRET12345-abc", "sk-proj-SECRETabcdefghijkl123"),
        "eyJhbGciOiJIUzI1NiJ9.eyJSECRETiOiIxMjM0In0.abcSECRET-_x",
        *("Authorization: Bearer SECRET", "{'Authorization': 'token SECRET'}", "Bearer SECRETabcdef123456"),
        *("curl -H 'PRIVATE-TOKEN: SECRET'", "git clone --token SECRET", "password: SECRET1"),
        "environ({'REGISTRY_PASSWORD': 'SECRET', 'HOME': '/root'})",
        *("[('MY_TOKEN', 'SECRET')]", "OPENAI_API_KEY=SECRET"),
        *("login(password=SECRET1)", '{"api_key": "SECRET"}', r'"{\"api_key\": \"SECRET\"}"', "HF_TOKEN='SECRET"),
        *("https://h/x?sig=SECRET&a=1", "https://hooks.slack.com/services/T0/B0/SECRET"),
        "-----BEGIN RSA PRIVATE KEY-----\nSECRET\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_a_token_or_a_password_is_masked_wherever_it_stands(text):
    assert "SECRET" not in masking.mask(text)
    assert masking.mask(masking.mask(text)) == masking.mask(text)
    assert masking.may_tell_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        *("main@abc", "/a/b@c", "https://host/a@b", "git@host:o/r", "a: b@c", "x/y://"),  # no passwords
        *("fix-token-ids", "Fix auth tokens in X", "[dynamo] Rename the key=value guard", "Author: A <a@b.c>"),
        *("num_key_value_heads=8", "past_key_values=None", "pad_token_id=0", "bos_token='<s>'", "PAD_TOKEN='[PAD]'"),
        *("max_new_tokens=128", "TOKENIZERS_PARALLELISM=false", "TORCHINDUCTOR_DISABLED_PASSES=a,b", "KEY_STRIDE=64"),
        *("hf_DistilBertForQuestionAnswering", "hf_Qwen2ForSequenceClassification", "hf_distil_whisper"),
        *("cache_key='fabcdef0123'", "DISPATCH_KEY='CUDA'", "f(password=password, token=token)", "use_auth_token=None"),
        *("login(api_key=os.environ['X'])", "no credentials: see docs", "Basic arithmetic operations"),
        *("https://h/x?author=me&keyword=cat", "task-learning-rate-scheduler-with-warmup", "eyJmdWxsZ3JhcGgiOnRydWV9"),
    ],
)
def test_words_that_only_resemble_secrets_stay_as_they_are(text):
    assert masking.mask(text) == text


def test_a_value_is_masked_by_its_name_in_a_structure_or_the_environment():
    assert masking.mask_fingerprint({"performance.api_key": "SECRET", "torch": "2"})["performance.api_key"] == "***"
    named = {"api_key": "SECRET", "key": "kept", "n": {"password": None}}
    assert masking.mask(named) == named | {"api_key": "***"}
    environ = {"REGISTRY_PASSWORD": "hunter2-x", "USE_TOKEN": "true", "CACHE_AUTH": "inductor", "SSH_KEY": "/root/id"}
    told = masking.mask_own({"a": ["said hunter2-x, true, inductor, /root/id"]}, environ)
    assert told == {"a": ["said ***, true, inductor, /root/id"]}


@pytest.mark.parametrize("spell", [repr, json.dumps, quote, lambda value: quote(value, safe=""), str])
def test_a_secret_is_masked_however_it_is_spelled(spell):
    secret = """it's\\a"pw/9+9=é"""
    told = masking.mask_own(f"said {spell(secret)}, and more", {"DB_PASSWORD": secret})
    assert re.fullmatch(r"""said ['"]?\*\*\*['"]?, and more""", told)


@pytest.mark.parametrize("secret", ["Tr0ub4dor-and-3", "with a space-3", "two\nlines-3"])
@pytest.mark.parametrize("length", range(100, 120))
def test_the_end_of_a_log_begins_with_no_end_of_a_secret(secret, length, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", secret)
    told = masking.ending(100 * f"{secret}\n".encode(), length)
    assert set(told) == {"*", "\n"}, told
    assert masking.ending(f"said {secret}".encode(), length) == "said ***", "nothing was cut"


def test_a_text_is_masked_before_it_is_cut(monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "Tr0ub4dor-and-3")
    assert masking.excerpt("said Tr0ub4dor-and-3", 12) == "said ***"
    assert reason_of(ValueError(f"{290 * 'a'} Tr0ub4dor-and-3")) == f"ValueError: {290 * 'a'} ***"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'File "{PACKAGES}/torch/nn/modules/module.py", line 1', 'File "torch/nn/modules/module.py", line 1'),
        ("/home/ann/.venv/lib/python3.11/site-packages/torch/x.py:3", "torch/x.py:3"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "numpy/core.py"),
        ("/opt/conda/lib/python3.12/contextlib.py", "contextlib.py"),
        (f"{ROOT}/collector/measure/cell.py", "collector/measure/cell.py"),
        (f"({ROOT}/collector/a.py, {PACKAGES}/torch/b.py)", "(collector/a.py, torch/b.py)"),
        ("no path here: a/b", "no path here: a/b"),
        ("", ""),
    ],
)
def test_a_path_starts_at_its_package(text, expected):
    assert masking.shorten(text) == expected


def test_nothing_of_this_machine_is_left_in_a_measurement():
    where = f"{torch.__file__}:1 {ROOT}/collector/process/worker.py:2"
    found = Measurement(cell(), Status.CRASHED, "2026-08-01T00:00:00+00:00", 1.0)
    found.details, found.log_tail = {"reasons": {where: 1}}, f"Traceback\n  {where}\n"
    found.failure = Failure(Stage.COMPILE, "E", where, where)
    hide_paths(found)
    text = str(found.to_json())
    assert str(ROOT) not in text
    assert PACKAGES not in text
    assert "torch/__init__.py:1 collector/process/worker.py:2" in text
