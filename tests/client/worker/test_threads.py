"""The line of sync handlers, and the way back to the loop."""

from __future__ import annotations

import asyncio
import threading

from raftsched.client.worker.threads import WAKE_AT_ONCE, Mailbox, Threads

from .node import PATIENCE_S


async def settled(count: int, done: list[int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(done) < count:
            await asyncio.sleep(0.001)


async def test_a_long_line_of_short_work_is_done_by_few_threads() -> None:
    threads = Threads(asyncio.get_running_loop(), maximum=100)
    done: list[int] = []
    all_wait, last = threading.Event(), threading.Event()

    def wait() -> None:
        all_wait.wait(PATIENCE_S)

    # Who finds the line empty goes to rest, and only the loop would wake him.
    for _ in range(WAKE_AT_ONCE):
        threads.submit(wait)
    for number in range(1_000):
        threads.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    threads.submit(last.set)
    all_wait.set()
    # The loop does not come by meanwhile, so nobody else is woken.
    assert last.wait(PATIENCE_S)

    assert threads._count <= WAKE_AT_ONCE
    await settled(1_000, done)
    assert sorted(done) == list(range(1_000))
    threads.close()


async def test_work_that_waits_holds_up_nobody_else() -> None:
    threads = Threads(asyncio.get_running_loop(), maximum=8)
    done: list[int] = []
    gate = threading.Event()

    def hold() -> None:
        gate.wait(PATIENCE_S)

    for _ in range(7):
        threads.submit(hold)
    for number in range(50):
        threads.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    await settled(50, done)

    gate.set()
    threads.close()


async def test_there_are_never_more_threads_than_said_and_the_line_is_worked_off() -> None:
    threads = Threads(asyncio.get_running_loop(), maximum=3)
    running, most = [0], [0]
    lock = threading.Lock()
    done: list[int] = []

    def work() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.002)
        with lock:
            running[0] -= 1
        done.append(1)

    for _ in range(60):
        threads.submit(work)
    await settled(60, done)

    assert most[0] == 3
    assert threads._count == 3
    threads.close()


async def test_threads_end_when_they_are_closed() -> None:
    threads = Threads(asyncio.get_running_loop(), maximum=4)
    done: list[int] = []
    known = set(threading.enumerate())
    for _ in range(4):
        threads.submit(lambda: done.append(1))
    await settled(4, done)
    ours = set(threading.enumerate()) - known
    # A handler that does not stop must not keep the process.
    assert all(one.daemon for one in ours)

    threads.close()

    for one in ours:
        await asyncio.to_thread(one.join, PATIENCE_S)
        assert not one.is_alive()


async def test_what_threads_put_into_the_mailbox_comes_in_order_with_few_wakings() -> None:
    loop = asyncio.get_running_loop()
    got: list[int] = []
    mailbox = Mailbox(loop, got.append)
    wakings = [0]
    wake = loop.call_soon_threadsafe

    def counted(*arguments: object) -> object:
        wakings[0] += 1
        return wake(*arguments)  # type: ignore[arg-type]

    loop.call_soon_threadsafe = counted  # type: ignore[assignment, method-assign]
    for number in range(1_000):
        mailbox.put(number)
    assert wakings[0] == 1
    await settled(1_000, got)

    assert got == list(range(1_000))


async def test_a_mailbox_of_a_loop_that_is_closed_takes_no_harm() -> None:
    other = asyncio.new_event_loop()
    other.close()
    mailbox: Mailbox[int] = Mailbox(other, lambda item: None)

    mailbox.put(1)
    mailbox.put(2)
