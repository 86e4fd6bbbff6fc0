"""What a package index offers of torch: the versions, when each was uploaded, and what a build asks for.

pip is asked, in a process of its own, so that its configuration, certificates and proxies count. The questions go to pip's
inner modules, since no command of it answers them without downloading whole wheels; where they are not there, nothing is
known: versions must then be named, and dates are not told.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jobs.builds.build import Build, BuildError, in_order

#: Prints one JSON object: versions that fit this Python and platform, upload times by version, requirements of one.
_QUESTION = """
import json, sys, zipfile
from email.parser import HeaderParser
from pip._internal.commands import create_command
from pip._internal.network.lazy_wheel import dist_from_wheel_url
from pip._vendor.packaging.specifiers import SpecifierSet

version, words = sys.argv[1], sys.argv[2:]
command = create_command("download")
options, _ = command.parse_args(words)
options.pre = "dev" in version or not version
with command.main_context():
    session = command._build_session(options)
    finder = command._build_package_finder(options=options, session=session)
    offers = finder.find_all_candidates("torch")
    times = {}
    for page in {offer.link.comes_from for offer in offers if str(offer.link.comes_from).startswith("http")}:
        answer = session.get(page, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
        if "json" in answer.headers.get("Content-Type", ""):
            for file in answer.json()["files"]:
                times[file["filename"]] = file.get("upload-time")
    dates = {}
    for offer in offers:
        if moment := times.get(offer.link.filename):
            dates[str(offer.version)] = min(moment, dates.get(str(offer.version), moment))
    needs, taken = [], None
    if version:
        taken = finder.find_best_candidate("torch", SpecifierSet("==" + version, prereleases=True)).best_candidate
    if taken is not None and taken.link.is_wheel:
        if taken.link.is_file:
            with zipfile.ZipFile(taken.link.file_path) as wheel:
                name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
                text = wheel.read(name).decode()
        else:
            answer = session.get(taken.link.url_without_fragment + ".metadata")
            text = answer.text if answer.ok else None
        if text is None:
            needs = [item.name for item in dist_from_wheel_url("torch", taken.link.url, session).iter_dependencies()]
        else:
            needs = HeaderParser().parsestr(text).get_all("Requires-Dist") or []
    versions = sorted({str(offer.version) for offer in offers})
    print(json.dumps({"versions": versions, "dates": dates, "needs": needs, "taken": taken and str(taken.version)}))
"""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is offered. `dates` has, by version, the first upload of a file of it, ISO 8601; `needs` are requirements.

    `taken` is the version that a build's name leads to (2.13.0 to 2.13.0+cpu, where there is one), None where to none.
    """

    versions: tuple[str, ...] = ()
    dates: dict[str, str] | None = None
    needs: tuple[str, ...] = ()
    taken: str | None = None

    def date_of(self, build: Build) -> str | None:
        """When a build was uploaded, or the day in a nightly's version; None where neither is known."""
        dates = self.dates or {}
        return dates.get(build.version) or dates.get(build.public) or build.date


def ask(words: Sequence[str], version: str = "") -> Listing:
    """What the index that an installer's options `words` lead to offers, and what the build of a version asks for.

    Raises:
        BuildError: it cannot be asked, or has no such build.
    """
    said = _asked(tuple(words), version)
    if not said.versions:
        raise BuildError("the index offers no torch for this Python and platform: see --index-url and --python")
    if version and said.taken is None:
        near = ", ".join(build.version for build in in_order(Build(known) for known in said.versions)[-4:])
        raise BuildError(f"the index has no torch=={version} for this Python and platform; newest there: {near}")
    return said


def ask_or_nothing(words: Sequence[str]) -> Listing:
    """What `ask` finds; an empty listing where there is no answer: dates are then not known."""
    try:
        return ask(words)
    except BuildError:
        return Listing()


@cache
def _asked(words: tuple[str, ...], version: str) -> Listing:
    command = [sys.executable, "-c", _QUESTION, version, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1][:200]
        raise BuildError(f"the index cannot be asked ({last}): put uv on PATH, or name each build") from error
    return Listing(tuple(found["versions"]), found["dates"], tuple(found["needs"]), found["taken"])
