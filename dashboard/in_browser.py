"""The two things that a page does in the browser itself, by a script of ours that is the same for everybody.

- A link inside a table or sentence moves within the session, as the navigation at the left does, and does not load the page
  anew. It stays a link: with another key or button, or without this script, it is what any link is.
- What other pages are drawn with is loaded once the first one stands, after what that one itself still loads: else the first
  look at each waits for it.
  Streamlit's frontend loads the code of an element when a page first has one, 1.7 MB for a table, as much for a block of code.

Both hang on how Streamlit works inside: on `popstate`, which it takes for *back* and *forward*, and on the names of its files,
which change with every version. Where there is none of a name, nothing is loaded ahead.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import streamlit as st

#: Elements that the first page does not have, those that take longest first.
_ELEMENTS = (
    "DataFrame",
    "StreamlitSyntaxHighlighter",
    "DateInput",
    "ButtonGroup",
    "TextInput",
    "Checkbox",
    "DownloadButton",
)
_SCRIPT = """<script>
if (!window.inductorWatch) {
  window.inductorWatch = true;
  addEventListener('click', event => {
    const link = event.target.closest?.('.iw a[href]');
    if (!link || link.target === '_blank' || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey
        || event.shiftKey || event.altKey || link.origin !== location.origin) return;
    event.preventDefault();
    history.pushState({}, '', link.href);
    dispatchEvent(new PopStateEvent('popstate', {state: {}}));
    document.querySelector('[data-testid="stMain"]')?.scrollTo(0, 0);
  });
  const idle = window.requestIdleCallback ?? (then => setTimeout(then, 300));
  const load = name => name.endsWith('.css') ? fetch(name) : import(name);
  const next = names => { if (names.length) idle(() => load(new URL('./static/' + names[0], document.baseURI).href)
    .catch(() => {}).then(() => next(names.slice(1)))); };
  const begin = () => document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"] h1')
    ? setTimeout(() => next([%s]), 1500) : setTimeout(begin, 250);
  begin();
}
</script>"""


def start() -> None:
    """Has the browser do so, once a tab."""
    st.html(_script(), unsafe_allow_javascript=True)


@cache
def _script() -> str:
    """Nothing in it comes from the data or from elsewhere: the files are part of the installed Streamlit."""
    folder = Path(st.__file__).parent / "static" / "static"
    kinds = ("css", "js")
    found = [file for name in _ELEMENTS for kind in kinds for file in sorted(folder.glob(f"{kind}/{name}.*.{kind}"))]
    return _SCRIPT % ", ".join(f"'{file.parent.name}/{file.name}'" for file in found)
