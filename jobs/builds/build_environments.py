"""Measure one torch after the other, each in an environment of its own. A torch that fails is reported and skipped.

An environment is made when it is first needed, and kept in a folder that is complete or absent. Upload times are in the JSON
form of the index's pages (PEP 691 and 700); an index without it gives no dates.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from collector.bundle import BundleContents
from collector.device import GPU
from collector.output_file import write_output
from collector.vocabulary import short_hash
from jobs.builds.build_options import BuildError, BuildOptions, SourceOptions
from jobs.git_log import Repository
from jobs.output.terminal import one_line
from jobs.pool.child import (
    ChildError,
    Request,
    bundle_files,
    clean_environment,
    code_path,
    complete_bundles,
    measure_in,
)
from jobs.pool.device_slots import list_gpus
from jobs.pool.runner import new_run_id

#: The media type of a page in its JSON form.
JSON_PAGE = "application/vnd.pypi.simple.v1+json"
_VERSIONS = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
#: With -vv pip names the pages that it reads.
_PAGE = re.compile(r"^\* (https?://\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Listing:
    """The versions that an index offers; `dates` has, by version, the upload time of its first file in ISO 8601."""

    versions: tuple[str, ...] = ()
    dates: dict[str, str] = field(default_factory=dict)

    def date_of(self, build: Version) -> str | None:
        """Return the upload time of a build, or the day in a nightly's version; None if neither is known."""
        if uploaded := self.dates.get(str(build)) or self.dates.get(build.public):
            return uploaded
        try:
            return datetime.strptime(str(build.dev), "%Y%m%d").date().isoformat()
        except ValueError:
            return None


def list_builds(words: Sequence[str]) -> Listing:
    """Return the versions in the index that these options name. Raises `BuildError` if pip lists no torch for this machine."""
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
        for torch, moment in _upload_times(page):
            dates[torch] = min(moment, dates.get(torch, moment))
    return Listing(tuple(versions[1].split(", ")), dates)


def _upload_times(page: str) -> list[tuple[str, str]]:
    """Return the version and upload time of each wheel on a page; an empty list if the page has no JSON form."""
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


#: Prefixes of packages that come with a CUDA build of torch: gigabytes of libraries.
_CUDA = ("nvidia-", "nvidia_", "cuda-toolkit", "cuda-bindings", "cuda_")
_LONGEST = 300


class Installer:
    """An installer that makes an empty environment and installs into it. Its methods raise `BuildError` with its message."""

    def __init__(self, options: BuildOptions) -> None:
        self._options = options
        self._uv = shutil.which("uv")

    def create(self, folder: Path) -> Path:
        """Make an empty environment of the base Python, and return its interpreter."""
        base = str(self._options.base)
        if self._uv:
            command = [self._uv, "venv", "--quiet", "--python", base, str(folder)]
        else:
            command = [base, "-m", "venv", "--without-pip", str(folder)]
        _run(command, f"no environment can be made with {base}")
        return folder / "bin" / "python"

    def install(self, python: Path, packages: Sequence[str], *, of_torch: bool = True) -> None:
        """Install packages with one command; `of_torch`: they come from the index that was named for torch."""
        # pip compiles installed files to bytecode; without this option the first process to import torch would do it.
        compiled = ["--compile-bytecode"] if self._uv else []
        self._install(python, [*compiled, *self._target(python), *self._options.words(of_torch)], packages)

    def brings_cuda(self, python: Path, requirement: str) -> bool:
        """Return whether a build of torch would bring CUDA's libraries, without downloading them."""
        words = ["--dry-run", *self._target(python), *self._options.words()]
        if self._uv:
            output = self._install(python, words, [requirement])
            return any(line.strip().removeprefix("+ ").startswith(_CUDA) for line in output.splitlines())
        report = python.parent.parent / "report.json"
        words += ["--no-deps", "--report", str(report)]
        self._install(python, words, [requirement])
        (torch,) = json.loads(report.read_text())["install"]
        return any(name.startswith(_CUDA) for name in torch["metadata"].get("requires_dist", ()))

    def _install(self, python: Path, words: Sequence[str], packages: Sequence[str]) -> str:
        command = [*self._command(python), "install", *words, *packages]
        return _run(command, f"{' '.join(packages)} does not install")

    def _command(self, python: Path) -> list[str]:
        if self._uv:
            return [self._uv, "pip"]
        return [sys.executable, "-m", "pip", "--python", str(python)]  # pip installs from here into any environment

    def _target(self, python: Path) -> list[str]:
        return ["--python", str(python)] if self._uv else []


def torch_of(python: Path, variables: Mapping[str, str]) -> tuple[str, str]:
    """Return version and git commit of the torch that an interpreter imports. Raises `BuildError` if it imports none."""
    code = "import json, torch; print(json.dumps([torch.__version__, torch.version.git_version]))"
    output = _run([str(python), "-c", code], "torch does not import", variables, errors=False)
    version, commit = json.loads(output.splitlines()[-1])
    return str(version), str(commit)


def last_message(output: str) -> str:
    """Return the line of an installer's output that says what is wrong; for a conflict of pip, the requirements."""
    _, is_conflict, listed = output.partition("The conflict is caused by:")
    if is_conflict:
        excluding = listed.strip().partition("\n\n")[0].splitlines()
        return one_line(f"these exclude each other: {'; '.join(map(str.strip, excluding))}", _LONGEST)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for index, line in reversed(list(enumerate(lines))):
        if line.startswith(("cause:", "╰─▶")):  # uv's cause goes on until its hints
            cause = " ".join(lines[index:]).partition(" hint:")[0]
            return one_line(cause.removeprefix("cause:").removeprefix("╰─▶").strip(), _LONGEST)
    marked = [line for line in lines if line.startswith(("ERROR:", "error:"))]
    return one_line(re.sub(r"^(ERROR:|error:)\s*", "", (marked or lines or ["no output"])[-1]), _LONGEST)


def _run(command: Sequence[str], problem: str, variables: Mapping[str, str] | None = None, errors: bool = True) -> str:
    """Run a command and return its output (with `errors`, of both streams). Raises `BuildError` if it fails."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            env=clean_environment(variables),
        )
    except OSError as error:
        raise BuildError(f"{problem}: {error.strerror or error}") from error
    if done.returncode:
        raise BuildError(f"{problem}: " + last_message(f"{done.stdout}\n{done.stderr}"))
    return done.stdout + (done.stderr if errors else "")


#: The file that is written last: an environment without it is incomplete, and made anew.
_MARKER = "inductor-watch.json"
#: The packages that measuring needs: for the command line, and for the models if installed here.
_NEEDED = ("click", "rich", "numpy", "transformers")


@dataclass(frozen=True, slots=True)
class Environment:
    """A complete environment: its Python, the torch in it, torch's git commit, and whether it was made just now."""

    python: Path
    torch: str
    commit: str
    is_new: bool = False


class Environments:
    """The environments below a folder, each named for its build and a hash of all that was requested in it.

    Besides torch each gets `options.packages`, else the packages of `pins_here`. CUDA builds are refused on a host without a
    GPU, unless `cuda_builds` says otherwise.
    """

    def __init__(self, options: BuildOptions, device: str | None) -> None:
        # Links in the folder are not resolved: a Python that is called by its resolved path does not find its environment.
        self.folder, self._options = options.envs.absolute(), options
        self._packages = options.packages or tuple(pins_here())
        has_gpu = device in (None, GPU) and bool(list_gpus())
        self._cuda_builds = has_gpu if options.cuda_builds is None else options.cuda_builds

    def path_of(self, build: Version) -> Path:
        """Return the folder of a build's environment, which need not exist."""
        options = self._options
        requested = [f"torch=={build}", str(options.base), self._packages, options.words()]
        return self.folder / f"torch-{build}-{short_hash(requested)[:8]}"

    def ready(self, build: Version) -> Environment:
        """Return the environment of a build. Make it first if it does not exist.

        Raises:
            BuildError: torch or another package does not install, or torch does not import. The folder is removed then.
        """
        path = self.path_of(build)
        with _locked(path):
            if (environment := _read(path)) is not None:
                return environment
            shutil.rmtree(path, ignore_errors=True)
            try:
                return self._make(path, build)
            except BaseException:
                shutil.rmtree(path, ignore_errors=True)
                raise

    def _make(self, path: Path, build: Version) -> Environment:
        installer, requirement = Installer(self._options), f"torch=={build}"
        python = installer.create(path)
        if not self._cuda_builds and installer.brings_cuda(python, requirement):
            raise BuildError(
                f"{requirement} is there as a CUDA build only, with gigabytes of libraries: name an index of CPU "
                "wheels with --index-url, or say --cuda-builds"
            )
        installer.install(python, [requirement])
        torch, commit = torch_of(python, code_path())
        if torch.partition("+")[0] != build.public:
            raise BuildError(f"{requirement} was asked for and torch {torch} is imported: see PYTHONPATH")
        if self._packages:
            installer.install(python, [f"torch=={torch}", *self._packages], of_torch=False)
        write_output(path / _MARKER, json.dumps({"torch": torch, "commit": commit}) + "\n")
        return Environment(python, torch, commit, is_new=True)


def pins_here() -> list[str]:
    """Return `name==version` of each package that measuring needs and that is installed here, and `setuptools`."""
    pins = []
    for name in _NEEDED:
        with suppress(PackageNotFoundError):
            pins.append(f"{name}=={version(name)}")
    # Older builds import setuptools to compile C++, and require it for Python 3.12 and later only, each its own version.
    return [*pins, "setuptools"]


def _read(path: Path) -> Environment | None:
    """Return the environment in a folder; None if there is no complete one."""
    python = path / "bin" / "python"
    with suppress(OSError, ValueError, KeyError, TypeError):
        contents: dict[str, Any] = json.loads((path / _MARKER).read_text())
        if python.exists():  # its base Python may be gone
            return Environment(python, str(contents["torch"]), str(contents["commit"]))
    return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other process makes this environment, and lock it; the lock of a dead process is free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


#: The branches of releases and of nightlies: in a branch of its own, such as `release/2.9`, a release would be the only point.
RELEASES, NIGHTLIES = "releases", "nightly"


@dataclass(frozen=True, slots=True)
class Build:
    """A build of torch, in an environment of its own."""

    version: Version
    environments: Environments
    listing: Listing

    @property
    def name(self) -> str:
        """The name of the build, such as `torch-2.9.1`."""
        return f"torch-{self.version}"

    @property
    def date(self) -> str | None:
        """The time when the build was uploaded to the index."""
        return self.listing.date_of(self.version)

    def prepare(self, request: Request, say: Callable[[str], None]) -> tuple[Path, Request, str]:
        """Return the Python that measures the build, the request of its run, and words for the torch that is measured.

        Make the environment first if it does not exist. Raises `ChildError`.
        """
        say(f"torch {self.version}: environment {self.environments.path_of(self.version)}")
        start = monotonic()
        environment = self.environments.ready(self.version)
        if environment.is_new:
            say(f"torch {self.version}: made in {monotonic() - start:.0f} s")
        branch = request.names.branch or (NIGHTLIES if self.version.is_prerelease else RELEASES)
        words = f"torch {environment.torch} @{environment.commit[:10]}"
        return environment.python, request.called(branch=branch, commit_date=self.date), words


@dataclass(frozen=True, slots=True)
class SourceCommit:
    """The Python files of a commit over the installed torch. The run gets the name of `branch`."""

    options: SourceOptions
    clone: Path
    sha: str
    branch: str

    date = None  # the run gets the date of the commit itself

    @property
    def name(self) -> str:
        """The name of the commit, such as `commit-70d99e998b49`."""
        return f"commit-{self.sha[:12]}"

    def prepare(self, request: Request, say: Callable[[str], None]) -> tuple[Path, Request, str]:
        """Return what `Build.prepare` returns, for the commit's overlay. Create the overlay first if it is missing."""
        names = replace(request.names, branch=request.names.branch or self.branch or None)
        options = replace(self.options, source=f"{self.clone}@{self.sha}")
        names, requested = options.applied(names, request.requested)
        words = f"{self.sha[:10]} {names.commit_title}"
        return Path(sys.executable), replace(request, names=names, requested=requested), words


def commits_of(options: SourceOptions, paths: Sequence[str] = (), last: int | None = None) -> list[SourceCommit]:
    """Return the commits of REPO@REF (one commit, or the `last` commits up to it) or of REPO@GOOD..BAD, oldest first.

    With `paths`, a range or the last commits have only commits that touch one of these paths.

    Raises:
        BuildError: another form, or no such commits.
        GitError: no clone, or it lacks a ref.
    """
    path, _, ref = str(options.source).rpartition("@")
    first, dots, tip = ref.rpartition("..")
    if not path or not tip or (dots and not first) or tip == ".":
        raise BuildError(f"--source {options.source}: write REPO@REF or REPO@GOOD..BAD: backfill measures commits")
    repository = Repository(Path(path).expanduser())
    head = repository.sha_of(tip)
    if first:
        shas = repository.landed(repository.sha_of(first), head, paths)
        shas = shas[-last:] if last else shas
    else:
        shas = repository.newest(head, last, paths) if last else [head]
    if not shas:
        raise BuildError(f"--source {options.source}: no commit there touches {', '.join(paths)}")
    branch = repository.branch_of(tip)
    return [SourceCommit(options, repository.path, sha, branch) for sha in shas]


@dataclass(slots=True)
class BackfillResult:
    """The outcome of one candidate: the measured torch and commit, the number of each status, or why it was skipped.

    `build` is the version of a build, or `commit-` and a sha for a source. `seconds` is 0 if nothing was left to measure.
    """

    build: str
    torch: str = ""
    commit: str = ""
    date: str | None = None
    runs: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    skipped: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with a key for every field."""
        data = {name: getattr(self, name) for name in self.__slots__}
        return data | {"statuses": dict(self.statuses), "seconds": round(self.seconds, 1)}

    def __str__(self) -> str:
        if self.skipped:
            name = self.build.replace("-", " ") if self.build.startswith("commit-") else f"torch {self.build}"
            return f"{name}: skipped: {self.skipped}"
        counts = ", ".join(f"{number} {status}" for status, number in self.statuses.most_common())
        took = f"{self.seconds:.0f} s" if self.seconds else "at hand"
        return f"torch {self.torch} @{self.commit[:10]} {(self.date or 'no date')[:10]}: {counts}; {took}"


@dataclass(frozen=True, slots=True)
class Backfill:
    """The options of all candidates: `folder` gets a folder of bundles for each candidate, `store` ingests a bundle."""

    request: Request
    folder: Path
    replicates: int
    store: Callable[[Path], str] | None
    say: Callable[[str], None]

    def fill(self, candidate: Build | SourceCommit) -> BackfillResult:
        """Measure a candidate, or report why it is skipped. Complete bundles are not measured again, but stored again."""
        result = BackfillResult(candidate.name.removeprefix("torch-"), date=candidate.date)
        start = monotonic()
        try:
            if self._measure(candidate, result):
                result.seconds = monotonic() - start
        except ChildError as error:
            result.skipped = error.message
            self.say(str(result))
        return result

    def _measure(self, candidate: Build | SourceCommit, result: BackfillResult) -> bool:
        """Make the runs that are not complete yet, and return whether there were any."""
        folders = [self.folder / candidate.name / f"{self.request.key}-{run + 1}" for run in range(self.replicates)]
        complete = [complete_bundles(folder) for folder in folders]
        is_done = all(complete)
        if not is_done:
            python, request, words = candidate.prepare(self.request, self.say)
            request = request.called(night=self._night(complete))
        for number, (folder, bundles) in enumerate(zip(folders, complete, strict=True), start=1):
            if not bundles:
                self.say(f"{words}, run {number}")
                bundles = measure_in(python, request, folder)
            self._take(result, folder, bundles)
        return not is_done

    def _night(self, complete: Sequence[Sequence[BundleContents]]) -> str:
        """Return the night that the replicates of a candidate share: the night of complete replicates, or a new one."""
        if self.replicates == 1:
            return ""
        names = (contents.header.night for bundles in complete for contents in bundles)
        return next(filter(None, names), "") or new_run_id()

    def _take(self, result: BackfillResult, folder: Path, bundles: Sequence[BundleContents]) -> None:
        for contents in bundles:
            result.runs += 1
            result.commit = contents.header.commit
            result.date = result.date or contents.header.commit_date
            result.torch = next((str(data["torch"]) for data in contents.environments.values() if "torch" in data), "?")
            result.statuses.update(item.status.value for item in contents.latest().values())
        if self.store:
            for path in bundle_files(folder):
                self.say(self.store(path))
