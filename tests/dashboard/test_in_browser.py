"""The script in the page: files of the installed Streamlit alone, and nothing ahead where there are none of these names."""

import re
from pathlib import Path

import streamlit as st

from dashboard import in_browser


def loaded():
    in_browser._script.cache_clear()
    return re.findall(r"'((?:css|js)/[^']+)'", in_browser._script())


def test_the_files_are_there_and_cover_every_element():
    folder = Path(st.__file__).parent / "static" / "static"
    found = loaded()
    assert all((folder / name).is_file() for name in found)
    assert {Path(name).name.partition(".")[0] for name in found if name.endswith(".js")} == set(in_browser._ELEMENTS)


def test_of_another_version_without_these_names_nothing_is_loaded(monkeypatch):
    monkeypatch.setattr(in_browser, "_ELEMENTS", ("NoSuchElement",))
    assert loaded() == []
    in_browser._script.cache_clear()
