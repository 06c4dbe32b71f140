"""Ten things that people come for, each done from the page alone, by what is written on it: how
many clicks that takes, and that what was asked for came to pass."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from raftsched.client import Client, Context, Worker, cron, every
from raftsched.client.testing import LocalCluster

from ...client.gateway.test_process import gateway
from .browser import Browser, Tab, eventually

pytestmark = pytest.mark.slow
logger = logging.getLogger(__name__)
TASKS: list[tuple[int, Callable[[Person], None]]] = []


@dataclass
class Person:
    """Somebody who looks and clicks; begins on the overview."""

    tab: Tab
    client: Client
    cluster: LocalCluster
    clicks: int = 0

    def click(self, name: str, role: str = "link", within: str = "body", nth: int = 0) -> None:
        self.clicks += 1
        place = self.tab.page.locator(within).first
        place.get_by_role(role, name=name).nth(nth).click()
        self.tab.settled()

    def to(self, page: str) -> None:
        self.click(page, within=".nav")
        self.sees(page, "main h1")

    def types(self, label: str, text: str) -> None:
        self.clicks += 1
        self.tab.page.get_by_label(label, exact=True).first.fill(text)

    def searches(self, text: str) -> None:
        self.clicks += 1
        box = self.tab.page.locator("main .search input").first
        box.fill(text)
        box.press("Enter")
        self.tab.settled()

    def sees(self, text: str, selector: str = "main") -> None:
        self.tab.page.wait_for_function(
            "([selector, text]) => [...document.querySelectorAll(selector)]"
            ".some((one) => one.innerText.includes(text))", arg=[selector, text],
        )  # fmt: skip

    def is_seen(self, text: str) -> bool:
        return text in self.tab.text("main")


def task(most: int) -> Callable[[Callable[[Person], None]], Callable[[Person], None]]:
    """One of the ten, which takes so many clicks at most."""

    def keep(act: Callable[[Person], None]) -> Callable[[Person], None]:
        TASKS.append((most, act))
        return act

    return keep


def worker_for(endpoints: list[str], host: str, seconds: float) -> Worker:
    worker = Worker(endpoints, labels={"host": host}, slots=4)

    @worker.handler("work")
    def work() -> None:
        time.sleep(seconds)

    @worker.handler("broken")
    def broken() -> None:
        raise ValueError("the upstream said no")

    @worker.handler("long")
    def long(context: Context) -> None:
        while not context.cancelled:
            time.sleep(0.05)

    return worker


@pytest.fixture(scope="module")
def town(browser: Browser) -> Iterator[tuple[LocalCluster, Client, str]]:
    """A cluster with something of each kind, three workers of which one is slow, a gateway."""
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(3))
        client = stack.enter_context(cluster.client())
        for number, seconds in enumerate((0.05, 0.05, 0.4)):
            host = "slow" if number == 2 else f"h{number}"
            stack.enter_context(cluster.work(worker_for(cluster.endpoints, host, seconds)))
        jobs = client.jobs
        for number in range(3):
            jobs.create(f"bill-{number}", handler="work", schedule=every(1),
                        labels={"team": "billing"}, overlap="allow")  # fmt: skip
        jobs.create("other", handler="work", schedule=cron("0 0 * * *"))
        # So many at once that no worker takes them all.
        for number in range(10):
            jobs.create(f"crowd-{number}", handler="work", schedule=every(1), overlap="allow")
        jobs.create("often", handler="work", schedule=every(1), overlap="allow")
        jobs.create("report", handler="work", schedule=cron("30 2 * * *", zone="Europe/Berlin"))
        jobs.update("report", schedule=cron("45 2 * * *", zone="Europe/Berlin"))
        jobs.create("fails", handler="broken", retry=1)
        jobs.create("migrate", handler="long")
        jobs.create("lost", handler="nobody-has-this")
        failed = jobs.trigger("fails")
        jobs.trigger("lost")
        jobs.trigger("migrate")
        eventually(lambda: failed.refresh().state == "FAILED", 30, "a run failed")
        served = stack.enter_context(gateway("--server", ",".join(cluster.endpoints)))
        yield cluster, client, f"http://{served.address}"


@task(4)
def find_what_failed_in_the_last_hour_and_requeue_it(one: Person) -> None:
    one.sees("fails", '[aria-label="Needs a look"]')
    one.click("fails", within='[aria-label="Needs a look"]')
    one.sees("the upstream said no")
    one.tab.page.locator("tbody input[type=checkbox]").first.click()
    one.clicks += 1
    one.click("Run again…", "button")
    one.click("Run again", "button", within=".ask")
    eventually(lambda: one.client.dead.count("job=fails AND attempt>1").number >= 1, 20, "again")


@task(2)
def why_does_this_run_not_start(one: Person) -> None:
    one.to("Runs")
    one.searches("lost")
    one.sees("nobody-has-this", "main tbody")


@task(5)
def pause_all_jobs_of_a_label(one: Person) -> None:
    one.to("Jobs")
    one.searches("labels.team=billing")
    one.click("Pause…", "button")
    one.sees("3 jobs", ".ask")
    one.click("Pause 3 jobs", "button", within=".ask")
    paused = [f"bill-{number}" for number in range(3)]
    eventually(lambda: {job.name for job in one.client.jobs.list("state=PAUSED")} == set(paused),
               20, "they are paused")  # fmt: skip


@task(1)
def is_last_night_complete_prove_it(one: Person) -> None:
    one.click("Prove that nothing is missing", "button")
    one.sees("nothing is missing", '[aria-label="Last day"]')
    one.sees(f"{one.client.jobs.count().number} jobs", '[aria-label="Last day"]')


@task(3)
def is_this_job_complete_prove_it(one: Person) -> None:
    one.to("Jobs")
    one.searches("often")
    one.click("often", within="main tbody")
    one.sees("gap-free")


@task(7)
def add_a_nightly_job_in_berlin_time_and_see_the_change_of_clocks(one: Person) -> None:
    one.to("Jobs")
    one.click("New job")
    one.types("Name", "nightly")
    one.types("Handler", "work")
    one.types("Expression", "30 2 * * *")
    one.types("Time zone", "Europe/Berlin")
    one.sees("does not exist", ".beside")
    one.sees("When the clocks change", ".beside")
    one.click("Create the job", "button")
    # The form has shown the days of the clock change too.
    one.sees("nightly", "main h1")
    one.sees("When the clocks change")
    spec = one.client.jobs.get("nightly").spec
    assert (len(spec.schedules), spec.timing.zone) == (1, "Europe/Berlin")


@task(1)
def which_worker_is_slow(one: Person) -> None:
    one.to("Workers")
    one.sees("times as long", "main tbody")
    [slow] = [row for row in one.tab.page.locator("main tbody tr").all_inner_texts()
              if "times as long" in row]  # fmt: skip
    assert "host=slow" in slow


@task(4)
def who_changed_this_job(one: Person) -> None:
    one.to("Jobs")
    one.searches("report")
    one.click("report", within="main tbody")
    one.click("Versions", within="main .tabs")
    one.sees("Version 2")
    one.sees("audit log")


@task(5)
def what_comes_at_midnight(one: Person) -> None:
    one.to("Timeline")
    one.click("24h", "button")
    one.click("Later", "button")
    midnight = datetime.now(UTC).date() + timedelta(days=1)
    at = datetime(midnight.year, midnight.month, midnight.day, tzinfo=UTC).timestamp() * 1_000
    lane = one.tab.page.locator(".time-row.head .lane").bounding_box()
    shown = one.tab.page.evaluate("() => Number(new URLSearchParams(location.search).get('at'))")
    place = lane["x"] + lane["width"] * ((at - shown) / 86_400_000 + 0.5)
    assert lane["x"] < place < lane["x"] + lane["width"]
    mouse, y = one.tab.page.mouse, lane["y"] + lane["height"] / 2
    mouse.move(place - 30, y)
    mouse.down()
    mouse.move(place, y)
    mouse.move(place + 30, y)
    mouse.up()
    one.clicks += 1
    one.sees("are due", "[aria-label='The chosen stretch']")
    one.click("Jobs whose next time lies in it")
    one.sees("other", "main tbody")
    assert not one.is_seen("crowd-0")


@task(4)
def stop_a_run(one: Person) -> None:
    one.to("Runs")
    one.click("running", within='main tbody tr:has-text("migrate")')
    one.click("Cancel…", "button")
    one.click("Cancel it", "button", within=".ask")
    eventually(lambda: not one.client.runs.count("job=migrate").number, 40, "it ended")


@task(3)
def drain_a_node(one: Person) -> None:
    one.to("Cluster")
    name = one.client.cluster.status().leader
    one.click("Drain…", "button", within=f'section[aria-label="{name}"]')
    one.click("Drain it", "button", within=".ask")
    one.sees("takes no calls", f'section[aria-label="{name}"]')
    eventually(lambda: one.client.cluster.status().leader not in ("", name), 20, "another leads")


@pytest.mark.parametrize(("most", "act"), TASKS, ids=[act.__name__ for _, act in TASKS])
def test_it_is_done_from_the_page_alone(
    browser: Browser, town: tuple[LocalCluster, Client, str], most: int,
    act: Callable[[Person], Any],
) -> None:  # fmt: skip
    cluster, client, url = town
    with Tab(browser, url) as tab:
        person = Person(tab.open("/"), client, cluster)
        began = time.monotonic()
        act(person)
        took = time.monotonic() - began
        logger.info("%s: %d clicks, %.1f s", act.__name__, person.clicks, took)
        assert person.clicks <= most
        assert tab.wrong() == []
