"""What handlers say and how they end, as a real cluster records it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from raftsched.client import Client, Context, PermanentError, RetryLater, Worker
from raftsched.client.executors import ShellExecutor
from raftsched.client.testing import LocalCluster, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with cluster.client() as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def worker(cluster: LocalCluster) -> Iterator[Worker]:
    worker = Worker(cluster.endpoints, slots=10, executors=[ShellExecutor()])

    @worker.handler("talks")
    async def talks(context: Context, pages: int) -> None:
        context.log.info("begun")
        context.progress(1, pages, "first")
        await asyncio.sleep(3_600)

    @worker.handler("later")
    def later(context: Context) -> list[object]:
        if context.attempt == 1:
            context.checkpoint({"page": 7})
            raise RetryLater(0.2, "busy")
        return [context.attempt, context.load_checkpoint(dict[str, int])]

    @worker.handler("never")
    def never() -> None:
        raise PermanentError("no such account", kind="gone")

    @worker.handler("looks")
    def looks(context: Context) -> None:
        context.wait_cancelled_sync(3_600)
        context.check_cancelled()

    thread = threading.Thread(target=lambda: asyncio.run(worker.serve()))
    thread.start()
    yield worker
    worker.stop(now=True)
    thread.join(PATIENCE_S)


def test_progress_and_log_are_seen_while_a_run_goes_on_and_cancel_ends_it(client: Client) -> None:
    client.jobs.create("talks", handler="talks", payload={"pages": 5})
    run = client.jobs.trigger("talks")
    wait_until(lambda: run.refresh().message.progress.done == 1, PATIENCE_S, "progress")

    assert run.message.progress.message == "first"
    assert run.message.log_tail.endswith(b"INFO begun\n")
    run.cancel()
    assert run.wait(PATIENCE_S).state == "CANCELLED"


def test_cancel_reaches_a_handler_on_a_thread(client: Client) -> None:
    client.jobs.create("looks", handler="looks")
    run = client.jobs.trigger("looks")
    wait_until(lambda: run.refresh().state == "RUNNING", PATIENCE_S, "its lease")

    run.cancel()

    assert run.wait(PATIENCE_S).state == "CANCELLED"


def test_the_next_attempt_comes_when_it_was_asked_for_with_the_checkpoint(client: Client) -> None:
    client.jobs.create("later", handler="later")
    run = client.jobs.trigger("later")

    assert run.result(timeout=PATIENCE_S) == [2, {"page": 7}]
    first, second = run.message.attempts
    assert first.error.kind == "RetryLater"
    assert second.start_time.ToMilliseconds() >= first.end_time.ToMilliseconds() + 200


def test_a_permanent_error_is_not_tried_again(client: Client) -> None:
    client.jobs.create("never", handler="never")
    run = client.jobs.trigger("never").wait(PATIENCE_S)

    assert (run.state, run.message.error.kind) == ("FAILED", "gone")
    assert len(run.message.attempts) == 1


def test_a_command_is_carried_out_by_a_worker_that_offers_it(client: Client) -> None:
    client.jobs.create("echo", shell=["/bin/echo", "hello"])
    run = client.jobs.trigger("echo").wait(PATIENCE_S)

    assert run.message.result.data == b"hello\n"


# The last one, as a drained worker stays so.
def test_a_drained_worker_finishes_what_it_has_and_gets_no_more(
    client: Client, worker: Worker
) -> None:
    client.jobs.create("held", handler="looks")
    client.jobs.create("refused", shell=["/bin/echo", "hello"])
    run = client.jobs.trigger("held")
    wait_until(lambda: run.refresh().state == "RUNNING", PATIENCE_S, "its lease")
    client.workers.drain(worker.id)
    [shown] = client.workers.list()

    assert (shown.draining, shown.leased) == (True, 1)
    late = client.jobs.trigger("refused")
    run.cancel()
    assert run.wait(PATIENCE_S).state == "CANCELLED"
    assert late.refresh().state == "PENDING"
