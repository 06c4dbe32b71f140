"""An app against real clusters: declaring, deferring, carrying out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from raftsched.client import App, RunFailed, SomeRefused, cron, every
from raftsched.client.app.sync import SyncRefused
from raftsched.client.errors import NotFound
from raftsched.client.testing import LocalCluster, wait_until

from ..client.app import shop

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3) as cluster:
        yield cluster


@pytest.fixture
def namespace(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """One for each test."""
    name = str(request.node.name).replace("_", "-")[:60]
    with cluster.client() as client:
        client.namespaces.create(name)
    return name


def app_of(cluster: LocalCluster, namespace: str, name: str = "shop", **settings: Any) -> App:  # noqa: ANN401
    return App(cluster.endpoints, name=name, namespace=namespace, **settings)


def test_sync_shows_the_difference_declares_and_deletes_what_is_gone(
    cluster: LocalCluster, namespace: str
) -> None:
    def a() -> None: ...

    def b(to: str) -> None: ...

    said: list[str] = []
    first = app_of(cluster, namespace)
    first.job(cron("0 9 * * mon"))(a)
    first.job(every(60), payload={"to": "ann"})(b)
    trial = first.sync(dry_run=True, say=said.append)
    assert (len(trial.of("create")), trial.done) == (2, False)
    assert "+ a" in said[0]
    assert first.jobs() == []
    assert first.sync(say=said.append).done
    assert first.sync(say=said.append).none
    assert said[-1] == "Jobs: 2 as declared."
    assert [repr(one).split(",")[0] for one in first.jobs()] == ["<Job a ACTIVE", "<Job b ACTIVE"]

    second = app_of(cluster, namespace)
    second.job(cron("0 8 * * mon"), priority="high")(a)
    changes = second.sync(say=said.append)
    [change] = changes.of("change")
    assert change.fields["schedules"][0] == "cron.expression 0 9 * * mon"
    assert change.fields["schedules"][1] == "cron.expression 0 8 * * mon"
    assert change.fields["priority"] == ("(unset)", "PRIORITY_HIGH")
    # Nobody was there to be asked.
    assert changes.left == ("b",)
    assert second.sync(yes=True, say=said.append).done
    with cluster.client(namespace=namespace) as client:
        wait_until(lambda: [job.name for job in client.jobs.list("state=ACTIVE")] == ["a"])

    other = app_of(cluster, namespace, name="bank")
    other.job(cron("0 7 * * mon"))(a)
    with pytest.raises(SyncRefused, match="belongs to the app 'shop'"):
        other.sync(say=said.append)
    wrong = app_of(cluster, namespace)
    wrong.job(cron("61 * * * *"))(a)
    with pytest.raises(SyncRefused, match="nothing was changed"):
        wrong.sync(say=said.append)


def test_what_is_not_declared_yet_says_how(cluster: LocalCluster, namespace: str) -> None:
    app = app_of(cluster, namespace)

    @app.task
    def work(n: int = 0) -> None: ...

    with pytest.raises(NotFound, match=r"app\.sync\(\)"):
        work.defer_sync()
    with pytest.raises(SomeRefused, match=r"2 entries were refused of 2.*sync") as refused:
        work.defer_many_sync([work.entry(1), work.entry(2)])
    assert refused.value.runs == [None, None]
    app.close()


def test_a_service_does_its_work(cluster: LocalCluster) -> None:
    app = shop.app
    with cluster.work(app):
        assert asyncio.run(bought()) == 995
        names = [f"customer-{number}" for number in range(50)]
        made = shop.import_orders(names)
        assert made[-1] == "a"
        bad = shop.charge.defer_sync(shop.Charge(1, 1, "bad"))
        with pytest.raises(RunFailed, match="BadCard"):
            bad.result(timeout=60)
        assert (bad.info.attempt, bad.info.error_kind) == (1, "BadCard")
        assert shop.make_thumbnail.defer_sync(b"\0" * 9).result(timeout=60) == 9
        assert shop.report.defer_sync(to="ben").result(timeout=60) >= 1
        later = shop.settle.defer_sync(7)
        wait_until(lambda: later.refresh().state == "RETRYING")
        later.cancel("no more")
        assert later.wait(timeout=60).state == "CANCELLED"
        wait_until(lambda: len(shop.ledgers[0].entries) >= 51)
    [ledger] = shop.ledgers
    assert ledger.is_open is False
    assert "remind: Your basket to customer-49" in ledger.entries
    assert shop.durations["closed"] == 0.0


async def bought() -> int:
    token = shop.tenant.set("acme")
    async with shop.app:
        taken = await shop.order_placed(7, "ann", 995)
        # The key is free again, as its run has ended; a reminder waits, and holds its own.
        one = await shop.remind.options(key="remind:7").defer(shop.Reminder("ben"))
        assert one.info.labels == {"tenant": "acme"}
        assert one.info.state == "PENDING"
        await one.cancel()
    shop.tenant.reset(token)
    return taken


def test_ten_thousand_are_deferred_in_few_calls(cluster: LocalCluster, namespace: str) -> None:
    app = app_of(cluster, namespace)

    @app.task
    async def work(n: int) -> None: ...

    app.sync(say=lambda _: None)

    async def all_of_them() -> list[str]:
        async with app:
            entries = [work.options(key=f"k{n % 9_999}").entry(n) for n in range(10_000)]
            return [run.id for run in await work.defer_many(entries)]

    ids = asyncio.run(all_of_them())
    assert len(set(ids)) == 9_999
    assert ids[0] == ids[-1]
    with cluster.client(namespace=namespace) as client:
        assert client.runs.count().number == 9_999
        client.runs.change_all("terminate", "")


def test_time_is_that_of_the_cluster() -> None:
    app = App()
    seen: list[int] = []

    @app.task
    def work(n: int) -> int:
        seen.append(n)
        return n

    @app.job(cron("0 6 * * *"))
    def each_morning() -> None:
        seen.append(0)

    with LocalCluster(virtual_clock=True) as cluster, cluster.work(app):
        run = work.options(in_=timedelta(days=2)).defer_sync(5)
        cluster.clock.advance(days=3)
        assert run.result(timeout=60) == 5
        assert seen == [0, 0, 5, 0]


def test_a_worker_of_the_app_serves_while_the_leader_dies() -> None:
    app = App()

    @app.task
    async def work(n: int) -> int:
        return n + 1

    with LocalCluster(3) as cluster, cluster.work(app):
        before = work.defer_many_sync(work.entry(n) for n in range(20))
        cluster.kill_leader()
        after = work.defer_sync(100)
        assert [run.result(timeout=60) for run in [*before, after]] == [*range(1, 21), 101]
