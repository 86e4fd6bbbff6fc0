"""Takes the README's pictures: the dashboard on the bundles under data/releases, in a headless Chromium.

python scripts/screenshots.py [FOLDER]      needs playwright (extra `dev`) and a chromium on the PATH
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from db.engine import open_store
from db.ingest import ingest_bundle

_ROOT = Path(__file__).resolve().parents[1]
#: torch 2.11.0 and 2.13.0, three runs each.
_SIDES = "base=releases@70d99e998b&new=releases@cf30153c4c"
#: Name, address, colour scheme, width, height.
_SHOTS = (
    ("overview-light", f"?{_SIDES}", "light", 1400, 864),
    ("overview-dark", f"?{_SIDES}", "dark", 1400, 864),
)


def main() -> None:
    """Ingests the bundles into a database of its own, starts the app and takes every picture."""
    if len(sys.argv) > 2 or (sys.argv[1:2] and sys.argv[1].startswith("-")):
        sys.exit("usage: python scripts/screenshots.py [FOLDER]")
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else _ROOT / "docs" / "images")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        database = Path(place) / "pictures.db"
        engine = open_store(database, write=True)
        for bundle in sorted((_ROOT / "data" / "releases").rglob("*.jsonl.gz")):
            ingest_bundle(engine, bundle)
        engine.dispose()
        _take_all(folder, database)


def _take_all(folder: Path, database: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(_ROOT / "dashboard" / "app.py"),
        "--server.port",
        str(port),
    ]
    server = subprocess.Popen(command, env={**os.environ, "INDUCTOR_WATCH_DB": str(database)})
    try:
        _wait_for(port)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name, address, scheme, width, height in _SHOTS:
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                page.goto(f"http://127.0.0.1:{port}/{address}")
                page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"] h1', timeout=60_000)
                page.wait_for_selector('[data-testid="stSkeleton"]', state="detached", timeout=60_000)
                page.wait_for_timeout(2500)  # charts draw after the script has ended
                page.screenshot(path=folder / f"{name}.png")
                page.close()
            browser.close()
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise SystemExit("the dashboard did not start")


if __name__ == "__main__":
    main()
