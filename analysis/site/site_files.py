"""The files of a published site: written where they changed, kept where their sources did not, removed where they are gone.

A manifest in the folder says which files are the site's, and by which key each was made. Other files are left alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collector.output_file import write_output
from collector.usage_errors import ExpectedError

_MANIFEST = "site-manifest.json"
#: Characters of a name that an address needs no escapes for; longer names are cut.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_LONGEST = 60
#: Files beside a site that belong to its host.
_OF_HOST = {"CNAME"}


class SiteFolderError(ExpectedError):
    """A folder that holds something else than a site; one line for a person."""


def file_of(name: str) -> str:
    """Return a name for a file or folder that tells `name` from every other one, and is `name` where that is plain."""
    if _PLAIN.fullmatch(name) and len(name) <= _LONGEST:
        return name
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:_LONGEST].strip("-") or "x"
    return f"{plain}.{digest(name)[:8]}"


def digest(*parts: object) -> str:
    """Return a hash of some texts and numbers."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:20]


class SiteFiles:
    """A folder with a site."""

    def __init__(self, folder: Path, made_by: str) -> None:
        """Open a folder; a site that another `made_by` made is made anew.

        Raises `SiteFolderError` where the folder holds files and no site.
        """
        self.folder, self._made_by = folder, made_by
        self.written = self.kept = self.removed = 0
        self._keys: dict[str, str] = {}
        try:
            before = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
            self._before: dict[str, str] = {str(name): str(key) for name, key in before["files"].items()}
            self._is_same = before["made_by"] == made_by
        except FileNotFoundError:
            self._before, self._is_same = {}, False
            if folder.exists() and any(_is_strange(path) for path in folder.iterdir()):
                raise SiteFolderError(f"{folder} holds files and no published site: name an empty folder") from None
            self._write_manifest({})  # a publication that is cut short can then be made again
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SiteFolderError(f"{folder / _MANIFEST} is damaged: remove the folder, or name another") from None

    def is_current(self, name: str, key: str) -> bool:
        """Return whether a file was made by this key and is there; then it is kept."""
        if self._is_same and self._before.get(name) == key and (self.folder / name).is_file():
            self._keys[name] = key
            self.kept += 1
            return True
        return False

    def put(self, name: str, content: str | bytes, key: str = "") -> None:
        """Write a file of the site where its content changed."""
        path, new = self.folder / name, content.encode(errors="replace") if isinstance(content, str) else content
        self._keys[name] = key
        if path.is_file() and path.read_bytes() == new:
            self.kept += 1
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_output(path, new, sync=False)
        self.written += 1

    def put_json(self, name: str, content: Any, key: str = "") -> None:
        """Write a value as JSON where it changed."""
        self.put(name, json.dumps(content, separators=(",", ":"), ensure_ascii=False, default=str), key)

    def read_json(self, name: str) -> Any:
        """Return what a file of the site holds."""
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def size_of(self, name: str) -> int:
        """Return how many bytes a file of the site has."""
        return (self.folder / name).stat().st_size

    def close(self) -> None:
        """Remove the files that belong to the site no more, and write the manifest."""
        root = self.folder.resolve()
        for name in self._before.keys() - self._keys.keys():
            path = self.folder / name
            if path.resolve().is_relative_to(root) and path.is_file():
                path.unlink()
                self.removed += 1
                for parent in path.parents:
                    if parent == self.folder or any(parent.iterdir()):
                        break
                    parent.rmdir()
        self._write_manifest(self._keys)

    def _write_manifest(self, keys: dict[str, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = {"made_by": self._made_by, "files": dict(sorted(keys.items()))}
        write_output(self.folder / _MANIFEST, json.dumps(manifest, indent=0))

    @property
    def size(self) -> int:
        """Return how many bytes the files of the site have."""
        return sum(self.size_of(name) for name in (*self._keys, _MANIFEST))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of its files."""
        return iter(self._keys)


def _is_strange(path: Path) -> bool:
    return not path.name.startswith(".") and path.name not in _OF_HOST
