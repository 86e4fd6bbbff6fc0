"""Records of regressions as an Atom feed (RFC 4287): a file that any reader follows, an entry a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote
from xml.etree import ElementTree

from db.regressions.records import RegressionInfo
from jobs.regressions.text import change_of

_NAMESPACE = "http://www.w3.org/2005/Atom"
#: Characters that XML 1.0 has no place for; names and notes are anybody's.
_FORBIDDEN = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 65534, 65535], "�")


def atom(records: Sequence[RegressionInfo], names: Mapping[str, str], dashboard: str = "") -> str:
    """The feed of these records, newest change first; `names` has the cell of each as people write it, by cell_id.

    With the address of a `dashboard` each entry leads to its record there.
    """
    feed = ElementTree.Element("feed", xmlns=_NAMESPACE)
    newest_first = sorted(records, key=lambda info: (_changed(info), info.regression_id), reverse=True)
    _add(feed, "id", "tag:inductor-watch,2026:regressions")
    _add(feed, "title", "inductor-watch: regressions")
    _add(feed, "updated", _stamp(_changed(newest_first[0]) if newest_first else datetime.fromtimestamp(0, UTC)))
    if dashboard:
        ElementTree.SubElement(feed, "link", href=f"{dashboard.rstrip('/')}/regressions")
    for info in newest_first:
        feed.append(_entry(info, names.get(info.cell_id, info.cell_id), dashboard))
    ElementTree.indent(feed)
    return ElementTree.tostring(feed, encoding="unicode", xml_declaration=True) + "\n"


def _entry(info: RegressionInfo, name: str, dashboard: str) -> ElementTree.Element:
    entry = ElementTree.Element("entry")
    _add(entry, "id", f"tag:inductor-watch,2026:regression/{info.regression_id}")
    _add(entry, "title", f"{info.state.replace('_', ' ')}: {name}, {info.metric or info.kind} {change_of(info)}")
    _add(entry, "updated", _stamp(_changed(info)))
    _add(entry, "published", _stamp(info.opened_at))
    _add(ElementTree.SubElement(entry, "author"), "name", info.events[0].author if info.events else "unknown")
    if dashboard:
        href = f"{dashboard.rstrip('/')}/regressions?closed=1&record={quote(info.regression_id)}"
        ElementTree.SubElement(entry, "link", href=href)
    _add(entry, "content", "\n".join(_lines(info)))
    return entry


def _lines(info: RegressionInfo) -> list[str]:
    commits = f"{(info.base_commit or 'not known')[:10]} to {(info.onset_commit or 'not known')[:10]}"
    events = [f"{_stamp(event.at)} {event.author}: {event.to_state}. {event.text}".strip() for event in info.events]
    return [f"{info.branch} of {info.repo}, {commits}", f"owner: {info.owner or 'nobody'}", *events]


def _add(parent: ElementTree.Element, tag: str, text: str) -> None:
    ElementTree.SubElement(parent, tag).text = text.translate(_FORBIDDEN).encode("utf-8", "replace").decode()


def _changed(info: RegressionInfo) -> datetime:
    return max([info.opened_at, *(event.at for event in info.events)])


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
