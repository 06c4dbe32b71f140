"""The page over the death of a leader, and without a majority."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from time import monotonic

import pytest

from ..processes import crowd
from .browser import Browser, Tab, eventually
from .conftest import Stand

pytestmark = pytest.mark.slow
logger = logging.getLogger(__name__)
# Without what the browser itself writes for each answer that is no success.
OURS = "Failed to load resource"
MOVE_S = 2.0


@pytest.fixture(autouse=True)
def all_alive(stand: Stand) -> Iterator[None]:
    yield
    for name in set(stand.cluster.names) - set(stand.cluster.alive):
        stand.cluster.revive(name)


def names(tab: Tab) -> set[str]:
    found: list[str] = tab.page.evaluate(
        "() => [...document.querySelectorAll('main tbody tr')].map((row) => row.innerText)"
    )
    return {word for row in found for word in row.split() if word.startswith("new-")}


def own(tab: Tab) -> list[str]:
    return [one for one in tab.wrong() if OURS not in one]


def test_a_leader_dies_and_nothing_is_missed(browser: Browser, stand: Stand) -> None:
    with Tab(browser, stand.url) as tab, stand.cluster.client() as client:
        tab.open("/jobs?q=name%3Dnew-*")
        tab.until(40, "() => document.querySelector('.pulse').innerText.includes('live')")
        wanted = set()
        for number in range(30):
            if number == 10:
                stand.cluster.kill_leader()
            client.jobs.create(f"new-{number:02}", handler="hello")
            wanted.add(f"new-{number:02}")
        end = monotonic() + 40
        while names(tab) < wanted:
            more = tab.page.locator("main button:has-text(' new')")
            if more.count():
                more.first.click()
            assert monotonic() < end, f"not shown: {sorted(wanted - names(tab))}"
            tab.page.wait_for_timeout(100)
        tab.until(30, "() => document.querySelector('.pulse').innerText.includes('leads')")
        assert own(tab) == []
        for name in wanted:
            client.jobs.delete(name)


def counted_by(tab: Tab) -> list[str]:
    """Who led when each of the figures was counted, as a script of the page gets them."""
    status, body = tab.ask("GET", "/v1/cluster/figures")
    return [one.get("leader", "") for one in body.get("figures", [])] if status == 200 else []


def test_figures_move_again_after_the_death_of_a_leader(browser: Browser, stand: Stand) -> None:
    """The gateway answers for a second with what it has, so the first new figure by time may still
    be one of the dead leader; what counts is one of the next."""
    with Tab(browser, stand.url) as tab:
        tab.open("/")
        tab.until(40, "() => document.querySelector('.pulse').innerText.includes('leads')")
        leader = stand.cluster.wait_for_leader()
        eventually(lambda: counted_by(tab)[-1:] == [leader], 40, f"{leader} has counted")
        dead = stand.cluster.kill_leader()
        began = monotonic()
        eventually(lambda: counted_by(tab)[-1:] not in ([], [dead]), 40, "another has counted")
        took = monotonic() - began
        logger.info("figures moved again after %.1f s", took)
        # The past is that of the former leader.
        assert dead in counted_by(tab)
        assert took < MOVE_S * crowd(), f"{took:.1f} s"


def test_without_a_majority_the_page_says_so_and_shows_what_is_known(
    browser: Browser, stand: Stand
) -> None:
    with Tab(browser, stand.url) as tab:
        tab.open("/jobs")
        dead = [name for name in stand.cluster.names if name != "n1"]
        for name in dead:
            stand.cluster.kill(name)
        tab.until(40, "() => document.querySelector('.pulse').innerText.includes('no leader')")
        assert "nightly" in tab.text("main")
        # And for whoever comes only now.
        tab.page.reload(wait_until="domcontentloaded")
        tab.until(40, "() => document.querySelector('main').innerText.includes('nightly')")
        tab.until(40, "() => document.querySelector('.pulse').innerText.includes('no leader')")
        for name in dead:
            stand.cluster.revive(name)
        tab.until(40, "() => document.querySelector('.pulse').innerText.includes('leads')")
        assert own(tab) == []
