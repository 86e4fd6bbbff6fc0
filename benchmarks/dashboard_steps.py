"""What a person does on the dashboard, as steps of `dashboard_browser`: on each page the things that are done most often.

A round comes back to where it began, so that rounds can be repeated; numbers in the words (which night, which model) grow
with the round, so that nothing is answered from what an earlier round has left in a cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.dashboard_browser import Act, Step, Wanted

_MAIN, _TITLE = '[data-testid="stMain"]', '[data-testid="stMain"] h1'
_SIDES = f"{_MAIN} .iw p.soft"
_VERDICT = ".iw-verdict"
_ROWS = '[data-testid="stDataFrame"] table tbody'
_CHARTS = f"{_MAIN} figure.iw-plot"


@dataclass(frozen=True, slots=True)
class Names:
    """What is in the store: nights and commits newest first, and models as the address spells them."""

    nights: tuple[str, ...]
    commits: tuple[str, ...]
    models: tuple[str, ...]
    configs: tuple[str, ...]
    suites: tuple[str, ...]

    def night(self, number: int) -> str:
        """Another one for every number, never one of the two newest."""
        return self.nights[2 + number % (len(self.nights) - 2)]

    def commit(self, number: int) -> str:
        """That of another night, the oldest first."""
        return self.commits[-1 - number % (len(self.commits) - 2)]

    def config(self, number: int, first: int = 0) -> str:
        """Another one for every number, none of the `first` ones."""
        return self.configs[first + number % (len(self.configs) - first)]

    def model(self, number: int) -> str:
        """Another one for every number."""
        return self.models[number % len(self.models)]


def rounds(names: Names, number: int) -> Iterator[Step]:
    """One round over all pages; `number` tells which round it is."""
    yield from overview(names, number)
    yield from compare(names, number)
    yield from model(names, number)
    yield from trends(number)
    yield from others()


def script(names: Names, number: int) -> Iterator[Step]:
    """The shorter way of one of many: look, pick a base, look for a model, open it, see the trends, come back."""
    yield _other_base("overview: other base", names.commit(3 * number), _SIDES)
    yield _page("Compare")
    yield _filter(names, number)
    yield _page("Model")
    yield _other_model(names, number)
    yield _page("Trends")
    yield _pick("trends: other figure", "metric", "cold compile", Wanted(_CHARTS))
    yield _page("Overview")


def overview(names: Names, number: int) -> Iterator[Step]:
    """Sides and filters."""
    yield _other_base("overview: other base", names.commit(number), _SIDES)
    yield Step("overview: swap", click(".st-key-swap button"), (Wanted(_SIDES),))
    yield Step("overview: swap", click(".st-key-swap button"), (Wanted(_SIDES),))
    suite = names.suites[number % len(names.suites)]
    yield _pick("overview: a suite", "suite", suite, Wanted(_VERDICT))
    yield _pick("overview: a suite", "suite", "all", Wanted(_VERDICT))


def compare(names: Names, number: int) -> Iterator[Step]:
    """Filters, order, and config against config."""
    yield _page("Compare")
    yield _filter(names, number)
    yield Step(
        "compare: filter by text", press("Enter"), (Wanted(_MAIN, "cells. Tick"),), type_into(".st-key-q_widget", "")
    )
    yield _add("compare: a config", "config", names.config(number), Wanted(_MAIN, "that match"))
    yield _clear("compare: a config", "config", Wanted(_MAIN, "cells. Tick"))
    yield _add("compare: an outcome", "outcome", "inconclusive", Wanted(_MAIN, "that match"))
    yield _clear("compare: an outcome", "outcome", Wanted(_MAIN, "cells. Tick"))
    for _ in range(2):
        yield Step("compare: sort", click_head, (Wanted(_ROWS, hidden=True),))
    yield Step("compare: config against config", _click_text("two configs of new"), (Wanted(_MAIN, "Base config"),))
    yield _pick("compare: other config", "to", names.config(number, first=2), Wanted(_SIDES))
    yield Step("compare: two sides again", _click_text("two sides"), (Wanted(_MAIN, "new synthetic"),))


def model(names: Names, number: int) -> Iterator[Step]:
    """One model, then another, and a config beside the first."""
    yield _page("Model")
    yield _other_model(names, number)
    # From the end: a model begins with the first config that the new night measured.
    more = names.configs[-1 - number % (len(names.configs) - 1)]
    yield _add("model: a config more", "config", more, Wanted(_MAIN, "base against new"))


def trends(number: int) -> Iterator[Step]:
    """Figures and switches."""
    yield _page("Trends")
    figure = ("cold compile", "compression", "compiled latency", "device time")[number % 4]
    yield _pick("trends: other figure", "metric", figure, Wanted(_CHARTS))
    for stretch in ("week", "night"):
        yield _pick("trends: nights, weeks", "by", stretch, Wanted(_CHARTS))
    yield Step("trends: log scale", click(".st-key-log_widget label"), (Wanted(".st-key-log_widget input:checked"),))


def others() -> Iterator[Step]:
    """The remaining pages."""
    for title in ("Regressions", "Runs", "About the numbers", "Overview"):
        yield _page(title)


def _page(title: str) -> Step:
    link = f'[data-testid="stSidebar"] [data-testid="stPageLink"] a:has-text("{title}")'
    # The model's page has the name of a model over it.
    return Step(f"page: {title}", click(link), (Wanted(_TITLE, "" if title == "Model" else title),))


def _other_base(kind: str, sha: str, shown: str) -> Step:
    return Step(kind, press("Enter"), (Wanted(shown, sha[:10]),), type_into(".st-key-base_widget", sha))


def _filter(names: Names, number: int) -> Step:
    name = names.model(7 * number).partition("/")[2]
    wanted = Wanted(_MAIN, "that match")
    return Step("compare: filter by text", press("Enter"), (wanted,), type_into(".st-key-q_widget", name))


def _other_model(names: Names, number: int) -> Step:
    name = names.model(11 * number + 5)
    return _pick("model: other model", "model", name, Wanted(_TITLE, name.partition("/")[2]))


def _pick(kind: str, key: str, option: str, *wanted: Wanted) -> Step:
    """An option of a select box: its list is opened and searched before, the choice is timed."""

    async def opened(page: Any) -> None:
        box = page.locator(f".st-key-{key}_widget input")
        await box.click()
        await box.fill(option)

    return Step(kind, press("Enter"), wanted, opened)


def _add(kind: str, key: str, option: str, *wanted: Wanted) -> Step:
    """One option more of a box of several."""

    async def opened(page: Any) -> None:
        box = page.locator(f".st-key-{key}_widget input")
        await box.click()
        await box.fill(option)

    async def left(page: Any) -> None:
        await page.keyboard.press("Enter")

    return Step(kind, left, wanted, opened)


def _clear(kind: str, key: str, *wanted: Wanted) -> Step:
    async def closed(page: Any) -> None:
        await page.keyboard.press("Escape")

    return Step(kind, click(f'.st-key-{key}_widget button[aria-label="Clear all"]'), wanted, closed)


def click(selector: str) -> Act:
    """A click at the first of these elements."""

    async def act(page: Any) -> None:
        await page.locator(selector).first.click()

    return act


def _click_text(text: str) -> Act:
    async def act(page: Any) -> None:
        await page.get_by_test_id("stMain").get_by_text(text, exact=True).first.click()

    return act


async def click_head(page: Any) -> None:
    """The head of the column of models in the table, a canvas: one click more is another order.

    At its left, since the right end of a narrow head opens a menu.
    """
    await page.get_by_test_id("stDataFrame").first.click(position={"x": 62, "y": 16})


def press(key: str) -> Act:
    """A key, where the page's focus is."""

    async def act(page: Any) -> None:
        await page.keyboard.press(key)

    return act


def type_into(where: str, text: str) -> Act:
    """A text in place of that of a widget, without a key that ends it."""

    async def act(page: Any) -> None:
        await page.locator(f"{where} input").fill(text)

    return act
