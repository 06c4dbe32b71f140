"""What is done on a page comes to pass in the cluster, and is asked with its count before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from raftsched.client import Run
from raftsched.client.testing import LocalCluster

from ...client.gateway.test_process import gateway
from .browser import Browser, Tab, eventually
from .conftest import Stand

pytestmark = pytest.mark.slow
VIEWS = ("/dead?view=runs", "/timeline?span=15m", "/timeline?span=7d")


def has_failed(run: Run) -> bool:
    return run.refresh().state == "FAILED"


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_of_a_page_loads_and_nothing_is_wrong(
    browser: Browser, stand: Stand, path: str
) -> None:
    for theme in ("light", "dark"):
        with Tab(browser, stand.url, theme=theme) as tab:
            tab.open(path)
            assert tab.wrong() == []
            assert tab.violations() == [], theme
    with Tab(browser, stand.url, width=380) as tab:
        tab.open(path)
        assert tab.page.evaluate("() => document.documentElement.scrollWidth") <= 380


def test_dead_letters_run_again_as_a_group_and_no_others(browser: Browser, stand: Stand) -> None:
    with Tab(browser, stand.url) as tab, stand.cluster.client() as client:
        client.jobs.create("other", handler="broken", retry=1)
        runs = [client.jobs.trigger("broken"), client.jobs.trigger("other")]
        for run in runs:
            eventually(partial(has_failed, run), 20, "a run failed")
        before = client.dead.count("job=other").number
        tab.open("/dead")
        row = tab.page.locator("tbody tr", has_text="broken").first
        row.get_by_role("button", name="Run again").click()
        asked = tab.page.locator(".ask")
        asked.get_by_role("button", name="Run again 2 dead letters").click()
        eventually(lambda: runs[0].refresh().message.attempt > 1, 20, "the run began again")
        assert client.dead.count("job=other").number == before
        eventually(partial(has_failed, runs[0]), 20, "it failed again")
        assert tab.wrong() == []


def test_what_is_asked_is_about_what_was_picked(browser: Browser, stand: Stand) -> None:
    """More names than a filter takes were refused; failed runs could not run again where they are
    listed; and a question outlived its filter, so a click did something to all others."""
    with Tab(browser, stand.url) as tab, stand.cluster.client() as client:
        names = [f"picked-{number:02}-{'n' * 60}" for number in range(30)]
        for name in names:
            client.jobs.create(name, handler="broken", retry=1, labels={"of": "many"})
        tab.open("/jobs?q=labels.of%3Dmany")
        pick_all, asked = tab.page.locator("thead input[type=checkbox]"), tab.page.locator(".ask")
        pick_all.click()
        tab.page.get_by_role("button", name="Pause…").click()
        asked.get_by_label("Reason, for people").fill("the warehouse moves")
        asked.get_by_role("button", name="Pause 30 jobs").click()
        eventually(lambda: client.jobs.count("labels.of=many AND state=PAUSED").number == 30, 20,
                   "they are paused")  # fmt: skip
        assert client.jobs.get(names[29]).status.pause_reason == "the warehouse moves"
        tab.open(f"/jobs/{names[0]}?tab=why")
        tab.until(30, "() => document.querySelector('main').innerText.includes('in its way')")
        runs = [client.jobs.trigger(name, force=True) for name in names[:2]]
        for run in runs:
            eventually(partial(has_failed, run), 20, "a run failed")
        tab.open(f"/runs?q=state%3DFAILED+AND+job%3D{names[0]}")
        pick_all.click()
        # Only what does something to them is offered.
        assert tab.page.get_by_role("button", name="Terminate…").count() == 0
        tab.page.get_by_role("button", name="Run again…").click()
        # Somebody else is faster: what is refused is said, and nothing else is asked about.
        client.dead.purge(f"job={names[0]}")
        asked.get_by_role("button", name="Run again 1 run").click()
        tab.until(30, "() => document.querySelector('.ask').innerText.includes('1 refused')")
        assert "Run again: 1 run" in asked.inner_text()
        tab.open("/dead")
        tab.page.get_by_role("button", name="Run all again…").click()
        asked.get_by_text("All of this namespace").wait_for()
        tab.page.keyboard.press("Escape")
        asked.wait_for(state="detached")
        focused = tab.page.evaluate("document.activeElement.innerText")
        assert focused == "Run all again…"
        tab.page.get_by_role("button", name="Run all again…").click()
        tab.page.locator(".search input").fill(f"job={names[1]}")
        tab.page.keyboard.press("Enter")
        asked.wait_for(state="detached")
        assert client.dead.count(f"job={names[1]}").number == 1
        tab.page.get_by_role("button", name="Last hour").click()
        tab.page.get_by_role("button", name="Run all that fit again…").click()
        asked.get_by_role("button", name="Run again 1 dead letter").wait_for()
        assert "end_time>" in asked.inner_text()
        tab.page.get_by_role("link", name="One by one").click()
        tab.until(30, f"() => document.querySelector('tbody')?.innerText.includes('{names[1]}')")


def test_what_is_not_known_is_no_good_news(browser: Browser, stand: Stand) -> None:
    """There was a green tick before anything was read, and one for times whose run only waits."""
    with Tab(browser, stand.url) as tab:
        held: list[Browser] = []
        for path in ("deadLetters", "events"):
            tab.page.route(f"**/v1/{path}?**", lambda route: held.append(route))
        tab.page.goto(stand.url)
        last = tab.page.locator('[aria-label="Last"]')
        last.get_by_text("Looking…").wait_for()
        head = tab.page.locator("main h1")
        assert (head.inner_text().strip(), head.locator(".is-ok").count()) == ("Looking…", 0)
        tab.page.unroute_all()  # What was held goes on.
        tab.until(30, "() => !document.querySelector('main h1').innerText.includes('Looking')")
        tab.page.keyboard.press("Control+K")
        tab.page.locator("dialog input").fill("night")
        tab.page.keyboard.press("Escape")
        tab.page.locator("dialog").wait_for(state="detached")
        tab.open("/jobs/hello")
        ledger = tab.page.locator('[aria-label="Ledger"]')
        ledger.get_by_text("became a run").first.wait_for()
        assert ledger.locator(".strip .is-ok").count() == 0
        tab.open("/runs?q=state%3DSUCCEEDED+AND+job%3Dnightly")
        tab.until(30, "() => document.querySelector('.table-foot')?.innerText.includes('shown')")
        # All of them are here, so no other number stands beside it.
        assert " of " not in tab.text(".table-foot")
        assert tab.wrong() == []


def test_a_queue_is_paused_with_a_reason_and_resumed(browser: Browser, stand: Stand) -> None:
    with Tab(browser, stand.url) as tab, stand.cluster.client() as client:
        tab.open("/queues/default")
        tab.page.get_by_role("button", name="Pause…").click()
        tab.page.get_by_label("Why").fill("the disk is full")
        tab.page.locator(".ask").get_by_role("button", name="Pause").click()
        eventually(lambda: client.queues.get("default").paused, 10, "the queue is paused")
        tab.until(30, "() => document.querySelector('main').innerText.includes('the disk is full')")
        tab.page.get_by_role("button", name="Resume…").click()
        tab.page.locator(".ask").get_by_role("button", name="Resume").click()
        eventually(lambda: not client.queues.get("default").paused, 10, "it is resumed")
        assert tab.wrong() == []


def test_a_flow_run_is_a_graph_with_the_states_of_its_jobs(browser: Browser, stand: Stand) -> None:
    with Tab(browser, stand.url) as tab:
        tab.open(f"/flows/{stand.names['run']}")
        tab.until(40, "() => document.querySelectorAll('.graph .box.is-ok').length === 2")
        assert tab.page.locator(".graph .link.met").count() == 1
        tab.page.locator('.graph .box[aria-label^="nightly"]').click()
        tab.until(30, "() => location.pathname.startsWith('/runs/')")


def test_a_stretch_is_chosen_by_pulling(browser: Browser, stand: Stand) -> None:
    with Tab(browser, stand.url) as tab:
        tab.open("/timeline?span=15m")
        lane = tab.page.locator('.lane[data-job="hello"]')
        box = lane.bounding_box()
        y = box["y"] + box["height"] / 2
        tab.page.mouse.move(box["x"] + 100, y)
        tab.page.mouse.down()
        for step in range(1, 6):
            tab.page.mouse.move(box["x"] + 100 + 60 * step, y)
        tab.page.mouse.up()
        tab.until(30, "() => new URLSearchParams(location.search).get('job') === 'hello'")
        assert "Backfill this stretch" in tab.text("main")
        tab.page.get_by_role("link", name="Show the runs").click()
        tab.until(30, "() => location.pathname === '/runs'")
        tab.settled()
        assert tab.wrong() == []


def test_a_calendar_is_made_changed_and_deleted(browser: Browser, stand: Stand) -> None:
    with Tab(browser, stand.url) as tab, stand.cluster.client() as client:
        tab.open("/settings/calendars")
        tab.page.get_by_role("button", name="New calendar").click()
        tab.page.get_by_label("Name", exact=True).fill("closing")
        tab.page.get_by_label("Days").fill("next week")
        tab.until(30, "() => document.querySelector('.ask .wrong')")
        tab.page.get_by_label("Days").fill("2026-12-24..2027-01-01\nsat")
        tab.page.get_by_role("button", name="Make it").click()
        tab.until(30, "() => document.querySelector('tbody')?.innerText.includes('closing')")
        assert len(client.calendars.get("closing").rules) == 2
        tab.page.get_by_role("button", name="Delete…").click()
        tab.page.get_by_role("button", name="Delete it").click()
        eventually(lambda: not list(client.calendars.list()), 10, "it is gone")
        assert tab.wrong() == []


def test_the_copies_of_the_nodes_are_compared(browser: Browser, stand: Stand) -> None:
    with Tab(browser, stand.url) as tab:
        tab.open("/cluster")
        tab.page.get_by_role("button", name="Compare now").click()
        tab.until(30, "() => document.querySelector('main').innerText.includes('equal and sound')")
        assert "can lose 1" in tab.text("main")
        assert tab.wrong() == []


@pytest.fixture
def open_cluster(browser: Browser) -> Iterator[str]:
    """One that nobody has closed yet."""
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(1))
        served = stack.enter_context(gateway("--server", ",".join(cluster.endpoints)))
        yield f"http://{served.address}"


def test_the_first_token_closes_the_cluster_and_its_secret_stays_seen(
    browser: Browser, open_cluster: str
) -> None:
    """It was gone: the page of tokens was the first that the closed cluster refused."""
    with Tab(browser, open_cluster) as tab:
        tab.open("/settings/tokens")
        tab.page.get_by_role("button", name="New access token").click()
        tab.page.get_by_label("Name", exact=True).fill("root")
        tab.page.get_by_role("button", name="Make it").click()
        tab.until(30, "() => document.querySelector('tbody')?.innerText.includes('root')")
        secret = tab.page.locator(".note .copy").inner_text()
        tab.page.get_by_role("button", name="I have it").click()
        tab.settled()
        assert tab.ask("GET", "/v1/whoami")[1]["name"] == "root"
    with Tab(browser, open_cluster) as other:
        other.page.goto(f"{open_cluster}/settings/tokens")
        other.page.get_by_label("Access token", exact=True).fill(secret)
        other.page.get_by_role("button", name="Sign in").click()
        other.until(10, "() => document.querySelector('tbody')?.innerText.includes('root')")
