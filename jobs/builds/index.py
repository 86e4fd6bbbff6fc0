"""The versions of torch that a package index offers to this Python, by pip's own configuration, and when each was uploaded.

Upload times are in the JSON form of the index's pages (PEP 691 and 700); an index without it gives no dates.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import httpx
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from jobs.builds.options import BuildError

#: The media type of a page in its JSON form.
JSON_PAGE = "application/vnd.pypi.simple.v1+json"
_VERSIONS = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
#: With -vv pip names the pages that it reads.
_PAGE = re.compile(r"^\* (https?://\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Listing:
    """The versions on offer; `dates` has, by version, when its first file was uploaded, ISO 8601."""

    versions: tuple[str, ...] = ()
    dates: dict[str, str] = field(default_factory=dict)

    def date_of(self, build: Version) -> str | None:
        """When a build was uploaded, or the day in a nightly's version; None where neither is known."""
        if uploaded := self.dates.get(str(build)) or self.dates.get(build.public):
            return uploaded
        try:
            return datetime.strptime(str(build.dev), "%Y%m%d").date().isoformat()
        except ValueError:
            return None


def list_builds(words: Sequence[str]) -> Listing:
    """What the index that these options name offers; raises `BuildError` where pip lists no torch for this machine."""
    command = [sys.executable, "-m", "pip", "index", "versions", "torch", "--pre", "-vv", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    versions = _VERSIONS.search(done.stdout)
    if versions is None:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
        raise BuildError(
            f"pip lists no torch for this Python and platform ({reason}): see --index-url, or name each build with --torch"
        )
    dates: dict[str, str] = {}
    for page in _PAGE.findall(done.stdout):
        for version, moment in _upload_times(page):
            dates[version] = min(moment, dates.get(version, moment))
    return Listing(tuple(versions[1].split(", ")), dates)


def _upload_times(page: str) -> list[tuple[str, str]]:
    """Version and upload time of each wheel on a page; nothing where the page has no JSON form."""
    try:
        answer = httpx.get(page, headers={"Accept": JSON_PAGE}, follow_redirects=True, timeout=60)
        files = answer.json()["files"] if answer.is_success and JSON_PAGE in answer.headers["Content-Type"] else []
        times = [(file["filename"], file.get("upload-time")) for file in files]
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
        return []
    dated = []
    for name, moment in times:
        if name.endswith(".whl") and moment:
            try:
                dated.append((str(parse_wheel_filename(name)[1]), str(moment)))
            except InvalidWheelFilename:
                continue
    return dated
