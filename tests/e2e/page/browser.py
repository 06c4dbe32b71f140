"""A browser before a real gateway: what it shows, and all that was wrong meanwhile."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

# Playwright is loaded when it is used, and carries types of its own then.
Browser = Any
UI = Path(__file__).parents[3] / "client" / "gateway" / "pages" / "ui"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--no-first-run",
    # Nothing is asked of anybody else.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]  # fmt: skip
WAIT_MS = 30_000
# What is wrong is remembered from the first script on.
WATCH = """
globalThis.violated = [];
addEventListener("securitypolicyviolation", (one) =>
  violated.push([one.violatedDirective, one.blockedURI, one.sourceFile, one.lineNumber].join(" ")));
"""
SETTLED = """() => document.querySelector("main h1, main h2")
  && !document.querySelector("main [aria-label=Loading], main tr.waits")"""
AXE = """() => axe.run(document, {resultTypes: ["violations"],
  runOnly: {type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}})
  .then((found) => found.violations.flatMap((one) => one.nodes.map((node) =>
    `${one.id}: ${one.help}: ${node.target.join(" ")} ${node.any.map((any) => any.message)}`)))"""


def paths() -> list[str]:
    """The patterns of all pages, as the page's own registry has them, and each part of settings."""
    found = re.findall(r'\bpath: "([^"]+)"', (UI / "registry.js").read_text())
    parts = re.findall(r'\{ name: "(\w+)"', (UI / "pages" / "settings.js").read_text())
    return [
        one.replace(":part", part) for one in found for part in (parts if ":part" in one else [""])
    ]


@contextmanager
def chromium() -> Iterator[Any]:
    """Skips where there is none, or nothing to steer it by."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), "")
    program = os.environ.get("RAFTSCHED_CHROMIUM", "") or found
    if not program:
        pytest.skip("no chromium is installed here; apt-get install chromium, or name one in "
                    "RAFTSCHED_CHROMIUM")  # fmt: skip
    if find_spec("playwright") is None:
        pytest.skip("playwright is not installed; it comes with .ci/requirements-page.txt")
    with import_module("playwright.sync_api").sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def axe() -> str:
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe is not installed; it comes with .ci/requirements-page.txt")
    return Path(found.origin).with_name("axe.min.js").read_text()


class Tab:
    """One page of one person."""

    def __init__(
        self, browser: Browser, url: str, width: int = 1_280, theme: str = "light"
    ) -> None:
        self.url = url
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=theme, reduced_motion="reduce"
        )
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.errors: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(f"page: {error}"))

    def _console(self, message: Browser) -> None:
        if message.type == "error":
            self.errors.append(f"console: {message.text} {message.location.get('url', '')}")

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def open(self, path: str) -> Tab:
        self.page.goto(self.url + path, wait_until="domcontentloaded")
        return self.settled()

    def settled(self) -> Tab:
        """All that it asks for is there."""
        self.page.wait_for_function(SETTLED)
        return self

    def wrong(self) -> list[str]:
        return [*self.errors, *self.page.evaluate("() => violated")]

    def violations(self) -> list[str]:
        """What axe finds."""
        self.page.evaluate(axe())
        found: list[str] = self.page.evaluate(AXE)
        return found

    def text(self, selector: str = "body") -> str:
        return str(self.page.inner_text(selector))

    def until(self, seconds: float, fits: str) -> float:
        """Wait until an expression is true in the page; how long that took."""
        began = monotonic()
        self.page.wait_for_function(fits, timeout=seconds * 1_000)
        return monotonic() - began

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """A call as a script of this page makes it."""
        found = self.page.evaluate(
            """async ([method, path, body]) => {
              const sent = body === null ? {} : {body: JSON.stringify(body),
                headers: {"content-type": "application/json"}};
              const answer = await fetch(path, {method, ...sent});
              const text = await answer.text();
              return [answer.status, text ? JSON.parse(text) : null];
            }""",
            [method, path, body],
        )
        return found[0], found[1]


def eventually(fits: Callable[[], object], seconds: float, what: str) -> None:
    end = monotonic() + seconds
    while not fits():
        assert monotonic() < end, f"{what} within {seconds:g} s"
        sleep(0.05)
