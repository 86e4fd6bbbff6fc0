"""The structure of the code: rules that no linter checks."""

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("collector", "db", "analysis", "jobs", "dashboard", "benchmarks", "scripts")


def test_no_module_name_is_used_twice():
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if not path.name.startswith("__")]
    assert len(files) > 100
    times = Counter(path.name for path in files)
    assert not sorted(str(path.relative_to(ROOT)) for path in files if times[path.name] > 1)
