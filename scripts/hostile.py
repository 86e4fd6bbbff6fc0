"""Run the tests on a machine that is set up badly, to find tests that depend on a user's settings.

    python scripts/hostile.py [--cores N] [--no-uv] [--seed N] [PYTEST'S WORDS...]

pip and uv have constraints that forbid everything and an index that does not exist, PYTHONPATH has a torch that does not
import, git's variables name a folder that does not exist, HOME cannot be written, and time zone, language and umask are
unusual. The order of the tests is random; the seed is printed.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_NOWHERE = "https://index.invalid/simple"
_FILES = {
    "pip.conf": f"[global]\nindex-url = {_NOWHERE}\nrequire-virtualenv = true\nuser = true\n",
    "constraints.txt": "".join(f"{name}<0\n" for name in ("torch", "click", "rich", "numpy", "pip", "synthetic-zoo")),
    "uv.toml": f'index-url = "{_NOWHERE}"\n',
    "gitconfig": "[commit]\n\tgpgsign = true\n[init]\n\tdefaultBranch = trunk\n[core]\n\thooksPath = /dev/null\n",
    "modules/torch.py": "raise ImportError('this torch belongs to somebody else')\n",
    "modules/sitecustomize.py": "import sys\nprint('somebody else was here', file=sys.stderr)\n",
    "tools/python3": "#!/bin/sh\nexit 97\n",
    "broken/uv": "#!/bin/sh\necho 'this uv belongs to somebody else' >&2\nexit 98\n",
}


def main() -> int:
    """Run pytest under all these settings, and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=0, help="how many cores the tests may use. [all]")
    parser.add_argument("--no-uv", action="store_true", help="put no uv on PATH; else one that is broken.")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the order of the tests.")
    options, words = parser.parse_known_args()
    if options.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    print(f"hostile: seed {options.seed}, cores {len(os.sched_getaffinity(0))}, uv {not options.no_uv}", flush=True)
    with tempfile.TemporaryDirectory(prefix="hostile-") as made:
        folder = Path(made)
        for name, text in _FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        # Every setting has a place of its own. A path below a device cannot be written, not even by root.
        tools = [str(folder / "tools"), *([] if options.no_uv else [str(folder / "broken")])]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environ = inherited | {
            "PATH": os.pathsep.join([*tools, os.environ["PATH"]]),
            "PYTHONPATH": str(folder / "modules"),
            "HOME": "/dev/null",
            "XDG_CONFIG_HOME": "/dev/null",
            "XDG_CACHE_HOME": "/dev/null",
            "PIP_CONFIG_FILE": str(folder / "pip.conf"),
            "PIP_CONSTRAINT": str(folder / "constraints.txt"),
            "UV_CONFIG_FILE": str(folder / "uv.toml"),
            "UV_CONSTRAINT": str(folder / "constraints.txt"),
            "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
            "GIT_DIR": str(folder / "nowhere"),
            "GIT_WORK_TREE": str(folder / "nowhere"),
            "TZ": "Pacific/Kiritimati",
            "LC_ALL": "tr_TR.UTF-8",
            "COLUMNS": "17",
            "FORCE_COLOR": "1",
            "INDUCTOR_WATCH_DB": "/dev/null/store.db",
            "INDUCTOR_WATCH_TRACEBACK": "1",
            "TORCHINDUCTOR_CACHE_DIR": "/dev/null/inductor",
            "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
            "TORCH_LOGS": "+inductor",
            "TRITON_CACHE_DIR": "/dev/null/triton",
            "CUDA_VISIBLE_DEVICES": "7",
            "CUBLAS_WORKSPACE_CONFIG": ":16:8",
            "OMP_NUM_THREADS": "1",
            "GITHUB_RUN_ID": "1",
            "GITHUB_REPOSITORY": "somebody/else",
            "GITHUB_SERVER_URL": _NOWHERE,
        }
        order = ["--random-order-bucket=module", f"--random-order-seed={options.seed}"]
        os.umask(0o077)
        command = [sys.executable, "-m", "pytest", *order, *words]
        return subprocess.run(command, cwd=_ROOT, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
