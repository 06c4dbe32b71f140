"""Every page: it loads, nothing is wrong, anybody can read and steer it, on any screen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from raftsched.client import cron, job_of

from .browser import Browser, Tab, paths
from .conftest import Stand

pytestmark = pytest.mark.slow
NARROW = 380


@pytest.mark.parametrize("pattern", paths())
def test_a_page_loads_and_nothing_is_wrong(browser: Browser, stand: Stand, pattern: str) -> None:
    for theme in ("light", "dark"):
        with Tab(browser, stand.url, theme=theme) as tab:
            tab.open(stand.path(pattern))
            assert tab.page.locator("main h1").count() >= 1
            assert tab.wrong() == []
            assert tab.violations() == [], theme


@pytest.mark.parametrize("pattern", paths())
def test_a_page_fits_a_narrow_screen(browser: Browser, stand: Stand, pattern: str) -> None:
    with Tab(browser, stand.url, width=NARROW) as tab:
        tab.open(stand.path(pattern))
        wide = tab.page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= NARROW
        assert tab.wrong() == []


def test_an_address_shows_the_same_to_anybody_and_back_works(
    browser: Browser, stand: Stand
) -> None:
    with Tab(browser, stand.url) as tab:
        tab.open("/jobs?q=name%3Abroken")
        tab.until(30, "() => document.querySelectorAll('main tbody tr:not(.waits)').length === 1")
        assert "broken" in tab.text("main")
        tab.open("/jobs")
        tab.page.click('main a:has-text("nightly")')
        tab.until(30, "() => location.pathname === '/jobs/nightly'")
        tab.settled()
        tab.page.go_back()
        tab.until(30, "() => location.pathname === '/jobs'")
        tab.settled()
        assert "broken" in tab.text("main")
        tab.page.go_forward()
        tab.until(30, "() => location.pathname === '/jobs/nightly'")
        assert tab.wrong() == []


def test_the_fullest_minute_leads_to_the_jobs_that_are_due_in_it(
    browser: Browser, stand: Stand
) -> None:
    with Tab(browser, stand.url) as tab, stand.cluster.client() as client:
        at = datetime.now(UTC) + timedelta(minutes=20)
        client.jobs.import_(
            job_of(f"herd-{number:03}", handler="hello",
                   schedule=cron(f"{at.minute} {at.hour} * * *"))
            for number in range(120)
        )  # fmt: skip
        tab.open("/")
        # A count that is kept may be of before.
        tab.until(
            90,
            """() => [...document.querySelectorAll('main a')].some((one) =>
          Number(/^most at .*?: (\\d+)/.exec(one.innerText)?.[1]) >= 120)""",
        )
        tab.page.get_by_role("link", name="most at").click()
        tab.until(30, "() => document.querySelector('main tbody')?.innerText.includes('herd-001')")
        assert "hello" not in tab.text("main tbody")
        tab.until(30, "() => document.querySelector('main').innerText.includes('of 120')")
        assert tab.wrong() == []
        for number in range(120):
            client.jobs.delete(f"herd-{number:03}")


def test_the_keyboard_is_enough(browser: Browser, stand: Stand) -> None:
    with Tab(browser, stand.url) as tab:
        tab.open("/")
        tab.page.keyboard.press("g")
        tab.page.keyboard.press("j")
        tab.until(30, "() => location.pathname === '/jobs'")
        tab.settled()
        tab.page.keyboard.press("/")
        tab.until(30, "() => document.activeElement.matches('input')")
        tab.page.keyboard.press("Escape")
        tab.page.evaluate("() => document.activeElement.blur()")
        tab.page.keyboard.press("Control+k")
        tab.until(30, "() => document.querySelector('dialog[open], [role=dialog]')")
        tab.page.keyboard.press("Escape")
        tab.until(30, "() => !document.querySelector('dialog[open], [role=dialog]')")
        tab.page.keyboard.press("?")
        tab.until(30, "() => document.querySelector('dialog[open], [role=dialog]')")
        assert tab.wrong() == []


def test_the_overview_asks_for_the_past_once(browser: Browser, stand: Stand) -> None:
    """That a leader is heard of for the first time is no reason to ask for all of it again."""
    with Tab(browser, stand.url) as tab:
        tab.open("/")
        tab.until(20, "() => document.querySelector('.pulse').innerText.includes('live')")
        tab.page.wait_for_timeout(500)
        asked = tab.page.evaluate(
            "() => performance.getEntriesByType('resource').map((one) => one.name)"
            ".filter((name) => name.includes('STEP_TEN_SECONDS'))"
        )
        assert len(asked) == 1


def test_an_unknown_address_is_said(browser: Browser, stand: Stand) -> None:
    with Tab(browser, stand.url) as tab:
        tab.open("/of-no-page")
        assert "/of-no-page" in tab.text("main")
        assert tab.wrong() == []


def test_what_is_typed_into_names_is_text(browser: Browser, stand: Stand) -> None:
    evil = "<img src=x onerror=alert(1)>"
    with Tab(browser, stand.url) as tab, stand.cluster.client() as client:
        client.jobs.create(
            "evil", handler="hello", description=evil, labels={"a": evil[:50]}, owner="turn\u202ed"
        )
        tab.open("/jobs?cols=name,owner,labels")
        tab.until(30, "() => document.body.innerText.includes('evil')")
        assert tab.page.locator("main img").count() == 0
        tab.until(30, "() => document.body.innerText.includes('turn\\\\u202ed')")
        assert tab.wrong() == []
        client.jobs.delete("evil")
