"""What the repository says of itself: its changes, and how it is installed."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_nobody_is_told_to_install_a_distribution_that_no_index_has():
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    texts = [ROOT / name.decode() for name in files if name.endswith((b".md", b".py", b".yml", b".toml"))]
    wrong = re.compile(r"pip install[^\n`]*[ '\"]inductor-watch\b(?!/)")
    found = [str(path) for path in texts if path != Path(__file__) and path.exists() and wrong.search(path.read_text())]
    assert len(texts) > 100
    assert found == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files_that_are_there(name):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []
