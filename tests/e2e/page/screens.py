"""Pictures of every page, for somebody to look at: both themes, a wide screen and a telephone.

    .venv/bin/python -m tests.e2e.page.screens FOLDER [WORD...]

The cluster behind them is that of company.py. With words only pages are taken whose path has one of
them. It takes a minute and a half until there is something to see, and a second for each picture.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from ...client.gateway.test_process import gateway
from .browser import Browser, Tab, chromium, paths
from .company import Company, company, found
from .test_signed_in import sign_in

WORKED_S = 75.0
SIZES = (1_280, 380)
THEMES = ("light", "dark")
# What other addresses show of the same pages; {} is a run of found().
MORE = (
    "/jobs?q=labels.team%3Dbilling", "/jobs?q=nothing-has-this-name", "/jobs/load?tab=around",
    "/jobs/train-model?tab=why", "/jobs/nightly-report?tab=versions", "/jobs/month-end?tab=spec",
    "/runs?q=state%3DFAILED", "/runs/{failed}", "/runs/{retrying}", "/runs/{waiting}",
    "/runs/{running}?tab=log", "/dead?view=runs", "/timeline?span=15m", "/timeline?span=24h",
    "/overview?span=24h", "/of-no-page",
)  # fmt: skip
# What is opened by keys, on top of the overview.
KEYS = {"palette": "Control+k", "keys": "?"}


def addresses(here: Company, words: list[str]) -> dict[str, str]:
    """By the name of the picture, the path that it is of."""
    with here.client() as client:
        runs = found(client)
    wanted = [re.sub(r":(\w+)", lambda part: here.names[part[1]], one) for one in paths()]
    for one in MORE:
        word = re.search(r"\{(\w+)\}", one)
        if word is None or word[1] in runs:
            wanted.append(one.format(**runs).replace("/overview", "/"))
    named = {
        re.sub(r"[^a-z0-9]+", "-", one.lower()).strip("-") or "overview": one for one in wanted
    }
    return {
        name[:60]: one for name, one in named.items()
        if not words or any(word in name for word in words)
    }  # fmt: skip


def take(tab: Tab, place: Path) -> None:
    # What has just come has its colour for a while, and lists ask beside the page for the rest.
    tab.page.wait_for_timeout(700)
    tab.page.screenshot(path=place, full_page=True)


def shoot(browser: Browser, url: str, here: Company, folder: Path, words: list[str]) -> None:
    wanted = addresses(here, words)
    for width in SIZES:
        for theme in THEMES:

            def place(name: str, width: int = width, theme: str = theme) -> Path:
                return folder / f"{name}.{width}.{theme}.png"

            with Tab(browser, url, width=width, theme=theme) as tab:
                tab.page.goto(f"{url}/jobs", wait_until="domcontentloaded")
                if not words or "signin" in words:
                    take(tab, place("signin"))
                sign_in(tab, here.token)
                tab.errors.clear()
                for name, path in wanted.items():
                    take(tab.open(path), place(name))
                for name, key in KEYS.items():
                    if not words or name in words:
                        tab.open("/").page.keyboard.press(key)
                        take(tab, place(name))
                for wrong in tab.wrong():
                    sys.stderr.write(f"{width} {theme}: {wrong}\n")


def main(words: list[str]) -> None:
    if not words:
        sys.exit(__doc__)
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    with (
        chromium() as browser, tempfile.TemporaryDirectory() as kept,
        company(Path(kept), WORKED_S) as here,
        gateway("--server", ",".join(here.cluster.endpoints)) as served,
    ):  # fmt: skip
        shoot(browser, f"http://{served.address}", here, folder, words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
