"""A page of the dashboard in a headless browser, and how long it takes until it shows what was asked for.

The clock runs inside the page. It starts with the first input event of an action (pointer down, key down), or with the
navigation of a load, and stops at the later one of two moments:

- Streamlit says that its script has ended and the page is connected, nothing on it is marked stale or a place holder, every
  chart and picture is there, **and** the content that is expected is; before the action it was not, or the step is refused
  as one that measures nothing;
- the last change of the document, stroke on a canvas (data frames) or picture (charts) in the main block or the side bar.

The second moment is known once nothing has moved for `QUIET_MS`; that silence is waited for and not counted. So a chart
that is drawn after the script has ended counts, and a page that idles before the server has heard of the click does not.

Not counted, since nobody sees it: a data frame is a canvas, and the copy of its text that it holds for screen readers follows
200 ms after the last stroke, on purpose (glide-data-grid). Steps that can be told by that copy alone check it, later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

#: So long nothing must have moved; longer than what Streamlit delays on purpose.
QUIET_MS = 300
_LIMIT_MS = 60_000

_PROBE = """
(() => {
  const watch = window.__watch = {began: null, last: 0, any: 0, armed: false};
  const inside = node => {
    const element = node.nodeType === 1 ? node : node.parentElement;
    return element && element.closest('[data-testid="stMain"], [data-testid="stSidebar"]')
      && !element.closest('[data-testid="stStatusWidget"], canvas > *');
  };
  new MutationObserver(all => {
    watch.any = performance.now();
    // What is put into a canvas is the copy of its text: see above.
    if (all.some(one => inside(one.target) && one.target.tagName !== 'CANVAS')) watch.last = watch.any;
  }).observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
  for (const name of ['clearRect', 'fillRect', 'fillText', 'stroke', 'fill', 'drawImage']) {
    const drawn = CanvasRenderingContext2D.prototype[name];
    CanvasRenderingContext2D.prototype[name] = function (...words) {
      if (this.canvas.isConnected && inside(this.canvas)) watch.last = performance.now();
      return drawn.apply(this, words);
    };
  }
  // A picture is in the document before it can be seen.
  addEventListener('load', event => {
    if (event.target.tagName === 'IMG' && inside(event.target)) watch.last = watch.any = performance.now();
  }, {capture: true});
  for (const kind of ['pointerdown', 'keydown'])
    addEventListener(kind, event => {
      if (watch.armed) { watch.began = performance.now(); watch.armed = false; }
    }, {capture: true});
  // Not innerText, which lays the page out anew each time that it is asked for: the clock must not cost what it measures.
  watch.text = selector => [...document.querySelectorAll(selector)].map(e => (e.getAttribute('aria-label') || '')
    + e.textContent).join('\\n');
  watch.shows = wanted => wanted.every(([selector, contains, before]) => {
    const now = watch.text(selector);
    return now.includes(contains) && (before === null || now !== before);
  });
  watch.idle = () => document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]'
    + '[data-test-connection-state="CONNECTED"]') !== null
    && document.querySelector('[data-testid="stMain"] [data-stale="true"], [data-testid="stSkeleton"]')
      === null
    && [...document.querySelectorAll('[data-testid="stMain"] [data-testid="stVegaLiteChart"]')]
      .every(chart => chart.querySelector('svg, canvas') !== null)
    && [...document.querySelectorAll('[data-testid="stMain"] img')].every(image => image.complete);
  watch.settled = (wanted, hidden, quiet, limit) => new Promise((resolve, reject) => {
    const asked = performance.now();
    let shown = null, looked = -1;
    const look = () => {
      const now = performance.now();
      // What does not move is not looked at twice; what is shown now has been so since the last change of anything.
      if (looked !== watch.any) {
        looked = watch.any;
        if (!(watch.idle() && watch.shows(wanted))) shown = null;
        else if (shown === null) shown = watch.any;
      }
      if (shown !== null && now - Math.max(shown, watch.last) >= quiet && watch.shows(hidden))
        resolve(Math.max(shown, watch.last) - (watch.began ?? 0));
      else if (now - asked > limit) reject(new Error('not settled: ' + JSON.stringify({idle: watch.idle(), wanted})));
      else setTimeout(look, 20);
    };
    look();
  });
})();
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be seen: elements whose text (or name, where there is none) holds `contains`, and has changed if `changed`.

    What is `hidden` from the eye is waited for without being timed.
    """

    selector: str
    contains: str = ""
    changed: bool = True
    hidden: bool = False


Act = Callable[[Any], Awaitable[None]]
#: Selector, text that it holds, and the text that it no longer has.
Looked = list[str | None]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a person does. `prepare` (a menu is opened) is not timed, `act` is; `wanted` says when it is done."""

    kind: str
    act: Act
    wanted: tuple[Wanted, ...]
    prepare: Act | None = None


@dataclass(slots=True)
class Watched:
    """A page that counts what goes wrong on it."""

    page: Any
    errors: list[str] = field(default_factory=list)

    async def load(self, address: str, *wanted: Wanted) -> float:
        """Opens an address in this tab; ms from the start of the navigation until it has settled."""
        await self.page.goto(address, wait_until="commit")
        return await self._settled([[one.selector, one.contains, None] for one in wanted], [])

    async def does(self, step: Step) -> float:
        """Takes a step; ms from its first input event until it has settled.

        Raises:
            RuntimeError: what is wanted is there already.
        """
        if step.prepare is not None:
            await step.prepare(self.page)
        wanted, hidden = [
            [await self._before(one) for one in step.wanted if one.hidden is is_hidden] for is_hidden in (False, True)
        ]
        if await self.page.evaluate("wanted => window.__watch.shows(wanted)", wanted + hidden):
            raise RuntimeError(f"{step.kind}: what is to be seen is there before: {wanted + hidden}")
        await self.page.evaluate("() => { window.__watch.began = null; window.__watch.armed = true; }")
        await step.act(self.page)
        return await self._settled(wanted, hidden)

    async def _before(self, wanted: Wanted) -> Looked:
        """What is wanted, with the text that is there now if it has to become another."""
        now = await self.page.evaluate("s => window.__watch.text(s)", wanted.selector) if wanted.changed else None
        return [wanted.selector, wanted.contains, now]

    async def _settled(self, wanted: list[Looked], hidden: list[Looked]) -> float:
        found = await self.page.evaluate(
            "([wanted, hidden, quiet, limit]) => window.__watch.settled(wanted, hidden, quiet, limit)",
            [wanted, hidden, QUIET_MS, _LIMIT_MS],
        )
        broken = await self.page.locator('[data-testid="stException"]').all_inner_texts()
        self.errors += [f"exception on the page: {text}" for text in broken]
        return float(found)


async def watched(browser: Any, width: int = 1400, height: int = 950, **how: Any) -> Watched:
    """A tab of a context of its own: a person with a browser whose cache is empty."""
    context = await browser.new_context(viewport={"width": width, "height": height}, **how)
    await context.add_init_script(_PROBE)
    return await tab(context)


async def tab(context: Any) -> Watched:
    """A new tab of a context."""
    found = Watched(await context.new_page())
    found.page.on("pageerror", lambda error: found.errors.append(f"script of the page: {error}"))
    return found
