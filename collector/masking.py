"""Masking of secret variables, passwords, tokens and host folders, which no bundle, database or report may contain."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

#: The part of a fingerprint's key before the name of a variable.
ENV = "env."
#: Words that no name of a recorded variable contains, in large or small letters.
_SECRET = re.compile("token|key|secret|password|passwd|auth|credential", re.IGNORECASE)
#: Beginnings of names whose variables are all options of a compiler or a library of kernels.
_FAMILIES = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_DYNAMO_", "TORCH_COMPILE_", "TORCH_CUDNN_", "PYTORCH_TUNABLEOP_")
#: Other variables that are known to change measurements. Variables with folders, hosts or devices are left out.
_LIST = """
    AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL AOT_PARTITIONER_DEBUG CUBLAS_WORKSPACE_CONFIG CUBLASLT_WORKSPACE_SIZE
    CUDA_AUTO_BOOST CUDA_CACHE_DISABLE CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_DISABLE_PTX_JIT
    CUDA_FORCE_PTX_JIT CUDA_LAUNCH_BLOCKING CUDA_MODULE_DATA_LOADING CUDA_MODULE_LOADING CUDA_SCALE_LAUNCH_QUEUES
    CUDNN_CONV_WSCAP_DBG NVIDIA_TF32_OVERRIDE KMP_AFFINITY KMP_BLOCKTIME KMP_DUPLICATE_LIB_OK KMP_HW_SUBSET
    KMP_INIT_AT_FORK KMP_SETTINGS MKL_NUM_THREADS OMP_NUM_THREADS PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
    PYTORCH_HIP_ALLOC_CONF PYTORCH_DDP_USE_SIDE_STREAM PYTORCH_JIT PYTORCH_MIOPEN_SUGGEST_NHWC
    PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_NVML_BASED_CUDA_CHECK TORCH_ALLOW_TF32_CUBLAS_OVERRIDE
    TORCH_BLAS_PREFER_CUBLASLT TORCH_CACHING_PRECOMPILE TORCH_COMPILER_COLLECTIVES TORCH_CPP_LOG_LEVEL
    TORCH_CUDA_ARCH_LIST TORCH_CUDAGRAPH_GC TORCH_DEVICE_BACKEND_AUTOLOAD TORCH_DISABLE_NATIVE_JIT
    TORCH_FAKE_TENSOR_DISPATCH_CACHE TORCH_LINALG_PREFER_CUSOLVER TORCH_LINALG_PREFER_HIPSOLVER TORCH_LOGS
    TORCH_NVCC_FLAGS TORCH_SHOW_CPP_STACKTRACES TORCH_SPARSE_BSR_SCATTER_MM_LRU_CACHE_SIZE
    TORCH_SYMM_MEM_DISABLE_MULTICAST TORCH_SYMMMEM_IMPLICIT_POOL TORCH_USE_CUDA_DSA TORCH_WARM_POOL
    TRITON_ALLOW_NON_CONSTEXPR_GLOBALS TRITON_ALWAYS_COMPILE TRITON_DEBUG TRITON_DEFAULT_BACKEND
    TRITON_DEFAULT_FP_FUSION TRITON_DISABLE_LINE_INFO TRITON_ENABLE_ASAN TRITON_ENABLE_LLVM_DEBUG TRITON_F32_DEFAULT
    TRITON_FRONT_END_DEBUGGING TRITON_INTERPRET TRITON_KERNEL_DUMP TRITON_KERNEL_OVERRIDE TRITON_MOCK_PTX_VERSION
    TRITON_OVERRIDE_ARCH TRITON_PRINT_AUTOTUNING TRITON_STORE_BINARY_ONLY TRITON_USE_ASSERT_OP
"""
_KNOWN = frozenset(_LIST.split())
#: User and password of an address. A path made of an address has one slash left.
_USER = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*:/{1,3})[^\s/?#\"<>]*@")
#: A value in an address's query whose name says that it is secret; `author` and `keyword` are no such names.
_QUERY = re.compile(rf"([?&][\w.-]*(?:{_SECRET.pattern}|signature|sig)s?(?![a-z])[\w.-]*=)[^\s&#\"'<>]+", re.IGNORECASE)
#: Webhooks: addresses that let everybody who knows them write.
_WEBHOOK = re.compile(r"(https://(?:hooks\.slack\.com/\w+|discord(?:app)?\.com/api/webhooks))/[\w/-]+")
#: Tokens with a known form, whatever their name: of GitHub, GitLab, Hugging Face, AWS, Google, Slack, PyPI, npm, OpenAI and
#: Anthropic, JSON web tokens, and private keys. Names of classes such as hf_Qwen2ForCausalLM do not match.
_TOKEN = re.compile(
    r"""\b(?:
    gh[pousr]_[A-Za-z0-9]{16,} | github_pat_\w{20,} | gl(?:pat|ptt|dt|rt)-[\w-]{16,}
    | hf_(?![A-Za-z0-9]*(?:For[A-Z]|Model))(?:[A-Za-z0-9]{32,}|(?=[A-Za-z]*\d)[A-Za-z0-9]{20,})
    | (?:AKIA|ASIA)[A-Z0-9]{16}\b | AIza[\w-]{35} | ya29\.[\w-]{20,} | xox[abeoprs]-[\w-]{10,}
    | pypi-[\w-]{50,} | npm_[A-Za-z0-9]{36} | sk-(?:(?:proj|svcacct|ant-\w+)-[\w-]{16,}|[A-Za-z0-9]{32,})
    | eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?
    )|-----BEGIN[ A-Z]*PRIVATE\ KEY-----.*?(?:-----END[ A-Z]*PRIVATE\ KEY-----|\Z)""",
    re.VERBOSE | re.DOTALL,
)
#: The value of an HTTP header that authorises a request.
_HEADER = re.compile(
    r"""((?i:\b(?:proxy-)?authorization|\bx-[\w-]*(?:key|token)|\bprivate-token)['"]?\s*[:=]\s*['"]?)(?:\w+\s+)?[^\s'",;]+"""
    r"|\b((?i:bearer)\s+)(?=[^\s'\"]*\d)[\w.~+/=-]{12,}"
)
#: The value of a command line's option such as `--token`.
_FLAG = re.compile(r"(--(?:[\w-]*-)?(?:password|passwd|token|secret|api-key)\s+)(?=[^\s'\"]*\D)(?!-)[^\s'\"]+")
#: `password: value`, where the value has a digit, so that it is neither a type nor a word.
_COLON = re.compile(
    r"\b((?:(?i:password|passwd|passphrase|(?:api|access|secret)[_ -]key|secret)|[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD)):[ \t]+)"
    r"(?=\S*\d)[^\s,'\"]{4,}"
)
#: A name, a sign that a value follows, and the value: `NAME=value`, `'NAME': 'value'`, `('NAME', 'value')`.
_ASSIGNMENT = re.compile(
    r"""(?P<name>\b[A-Za-z][\w-]*)(?P<sign>=|\\?["']\s*(?:[:=]|,(?=\s*\\?["']))\s*)"""
    r"""(?P<value>(?P<quote>\\?["'])(?:(?!(?P=quote)).)+|[^\s,;&'"<>(){}\[\]\\$%][^\s,;&'"<>)\]}\\]*)"""
)
#: Names of secrets in large or small letters, wherever a text gives them a value, and further names in large letters, as
#: variables have them.
_NAME = re.compile(
    r"(?:.*[_-])?(?:password|passwd|passphrase|(?:api|access|private|secret|signing|encryption)[_-]?key(?:[_-]id)?|secret"
    r"|(?:access|auth|refresh|bearer|api|hub|hf|github|gitlab|client|session)[_-]?token|client[_-]?secret|credentials)",
    re.IGNORECASE,
)
_VARIABLE = re.compile(
    r"[A-Z0-9_]*(?:(?<!PAD_)(?<!BOS_)(?<!EOS_)(?<!SEP_)(?<!UNK_)(?<!CLS_)(?<!MASK_)(?<!IMAGE_)TOKEN|SECRET|PASSWORD|PASSWD"
    r"|(?<!CACHE)(?<!SORT)(?<!PRIMARY)(?<!FOREIGN)(?<!PUBLIC)(?<!DISPATCH)(?<!PGO)_KEY|APIKEY|_AUTH|CREDENTIALS?|_PWD"
    r"|(?:DB|SMTP|MAIL|USER|ADMIN|ROOT|REDIS|PG|POSTGRES|MYSQL|PROXY|GIT)_?PASS)"
)
#: Values that are no secrets: switches, numbers, names of a program's own variables.
_PLAIN = re.compile(r"(?i:none|null|true|false|yes|no|on|off|\*+|[-+]?[\d.]+)|[a-z_][a-z_.]*(?:[\[(].*|(?=[,)(\[]))")
#: Parts of texts that may have a secret, in small letters: a text without any of them is not searched further.
_SIGNS = (
    *(
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "glptt-",
        "gldt-",
        "glrt-",
        "hf_",
        "akia",
        "asia",
    ),
    *("aiza", "ya29", "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "pypi-", "npm_", "sk-", "eyj"),
    *(
        "token",
        "key",
        "secret",
        "passw",
        "passphrase",
        "pass=",
        "_pass'",
        '_pass"',
        "_pwd",
        "auth",
        "credential",
        "bearer",
    ),
)
#: The fewest characters of a secret that is searched by its value: shorter ones are parts of other words.
_SHORTEST = 8
#: The fewest characters of a text that may contain a token.
_SHORTEST_TOKEN = 16
MASK = "***"


def is_recorded(name: str) -> bool:
    """Return whether the variable of this name is known to change measurements and has no word for a secret in its name."""
    return (name in _KNOWN or name.startswith(_FAMILIES)) and not _SECRET.search(name)


def may_tell_secret(line: str) -> bool:
    """Return whether a line of JSON may have a secret, by a quick look; `mask` decides."""
    small = line.lower()
    return (":/" in line and ("@" in line or "hook" in line or "?" in line)) or any(sign in small for sign in _SIGNS)


def mask(value: Any) -> Any:
    """Return a text, or a structure of texts, without passwords, tokens and the users of addresses. Tuples become lists."""
    if isinstance(value, str):
        return _mask_text(value)
    if isinstance(value, Mapping):
        return {mask(key): _mask_item(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item) for item in value]
    return value


def mask_own(value: Any, environ: Mapping[str, str] = os.environ) -> Any:
    """Mask a value as `mask` does, and also the values of secret variables in `environ` (`own_secrets`)."""
    own = own_secrets(environ)
    return mask(_replace(value, own) if own else value)


def excerpt(text: str, length: int) -> str:
    """Return the beginning of a text, masked by `mask_own` before it is cut, since half a secret is not recognised."""
    return str(mask_own(text))[:length]


def ending(log: bytes, length: int) -> str:
    """Return about the last `length` characters of a log, masked by `mask_own`.

    Half a secret is not recognised, so the log is masked before it is cut, and characters at its beginning that may be the
    end of a secret are left out.
    """
    kept = log[-2 * length :]
    told = str(mask_own(kept.decode("utf-8", "replace")))
    if len(kept) < len(log):
        longest = max(map(len, own_secrets()), default=0)
        told = re.sub(r"^\S*", "", told[longest:]).lstrip()
    return told[-length:]


def own_secrets(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the values of an environment's variables whose names say that they are secret, the longest value first.

    Each value is there as it is, and as Python, JSON and an address spell it. Switches, numbers, paths and plain words are
    left out, since they occur in other texts.
    """
    values = [value for name, value in environ.items() if _is_secret_name(name) and not _is_word(value)]
    found = {spelled for value in values for spelled in _spellings(value)}
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def _spellings(value: str) -> tuple[str, ...]:
    return value, repr(value)[1:-1], json.dumps(value)[1:-1], quote(value), quote(value, safe="")


def _is_word(value: str) -> bool:
    if len(value) < _SHORTEST or value.startswith("/") or value.isdigit():
        return True
    return value.islower() and re.sub("[_-]", "", value).isalpha() and len(value) < 2 * _SHORTEST


def _replace(value: Any, secrets: Iterable[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, MASK)
        return value
    if isinstance(value, Mapping):
        return {key: _replace(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace(item, secrets) for item in value]
    return value


def _mask_item(key: Any, item: Any) -> Any:
    if isinstance(item, str) and isinstance(key, str) and _is_secret_name(key) and not _is_plain(item):
        return MASK
    return mask(item)


def _mask_text(text: str) -> str:
    if ":/" in text:
        text = _WEBHOOK.sub(rf"\1/{MASK}", _QUERY.sub(rf"\1{MASK}", _USER.sub(r"\1", text)))
    if len(text) < _SHORTEST_TOKEN and "=" not in text and ":" not in text:
        return text
    small = text.lower()
    if not any(sign in small for sign in _SIGNS):
        return text
    text = _HEADER.sub(lambda found: (found[1] or found[2]) + MASK, _TOKEN.sub(MASK, text))
    text = _COLON.sub(rf"\1{MASK}", _FLAG.sub(rf"\1{MASK}", text))
    return _ASSIGNMENT.sub(_mask_assignment, text) if "=" in text or "'" in text or '"' in text else text


def _mask_assignment(found: re.Match[str]) -> str:
    quote, value = found["quote"] or "", found["value"]
    if not _is_secret_name(found["name"]) or _is_plain(value.removeprefix(quote), found.string[found.end() :][:1]):
        return found[0]
    return f"{found['name']}{found['sign']}{quote}{MASK}"


@lru_cache(1024)  # every line of a bundle asks for all variables
def _is_secret_name(name: str) -> bool:
    name = name.rpartition(".")[2]
    return _NAME.fullmatch(name) is not None or _VARIABLE.fullmatch(name) is not None


def _is_plain(value: str, following: str = "") -> bool:
    """Return whether a value is no secret: empty, a switch, a number, `<s>`, `[PAD]`, a variable. `following` comes after it."""
    found = _PLAIN.match(value + following)
    return not value or value[0] in "<[$%" or (found is not None and found.end() >= len(value))


def mask_fingerprint(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment's fingerprint without its hidden variables (`hidden_variables`), passwords and tokens."""
    hidden = hidden_variables(data)
    return {key: _mask_item(key, item) for key, item in data.items() if key.removeprefix(ENV) not in hidden}


def hidden_variables(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the variables in an environment that are not recorded (`is_recorded`)."""
    names = (str(key).removeprefix(ENV) for key in data if str(key).startswith(ENV))
    return tuple(sorted(name for name in names if not is_recorded(name)))


#: The beginnings of paths up to the folder of installed packages or the standard library, and up to this project's folder.
_INSTALLED = re.compile(r"(?:/[^\s\"':,()]+?)?/(?:(?:lib/python3\.\d+/)?(?:site|dist)-packages|lib/python3\.\d+)/")
_PROJECT = re.compile(re.escape(str(Path(__file__).resolve().parents[1])) + "/")


def shorten(value: Any) -> Any:
    """Return a text, or a structure of texts, with host paths cut down to `torch/...` or `collector/...`."""
    if isinstance(value, str):
        return _PROJECT.sub("", _INSTALLED.sub("", value))
    if isinstance(value, dict):
        return {shorten(key): shorten(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shorten(item) for item in value]
    return value
