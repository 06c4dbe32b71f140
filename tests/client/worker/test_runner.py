"""What handlers on threads say, on its way to the session."""

from __future__ import annotations

import threading

from raftsched.client.worker.outbox import PROGRESS_S
from raftsched.client.worker.protocol import Session
from raftsched.client.worker.runner import Runner
from raftsched.proto.v1 import worker_pb2

from .node import PATIENCE_S


async def no_secrets(lease: worker_pb2.Lease) -> dict[str, str]:
    raise AssertionError(f"nobody is asked here: {lease}")


async def test_words_of_a_thread_are_gathered_while_the_loop_is_busy() -> None:
    session = Session(worker_pb2.WorkerHello(worker="w", slots=1), 0.0)
    session.opened(0.0)
    session.frames(0.0)
    frame = worker_pb2.WorkResponse(leases=[worker_pb2.Lease(run="r", token=1)])
    frame.welcome.SetInParent()
    session.received(frame, 0.0)
    changes: list[int] = []
    runner = Runner({}, session, lambda: changes.append(1), lambda error: None, 1, no_secrets)

    def talk() -> None:
        runner.progress(worker_pb2.ProgressReport(run="r", token=1, checkpoint=b"kept"))
        for done in range(5_000):
            report = worker_pb2.ProgressReport(run="r", token=1)
            report.progress.done = done
            runner.progress(report)
        runner.extend(worker_pb2.ExtendRequest(run="r", token=1))

    # The loop stands still while the thread talks.
    thread = threading.Thread(target=talk)
    thread.start()
    thread.join(PATIENCE_S)
    assert len(runner._mailbox._items) == 1
    assert len(runner._progress) == 1

    runner._mailbox.empty()
    [extension, progress] = session.frames(PROGRESS_S)
    assert len(changes) == 1
    assert extension.extensions[0].token == 1
    assert progress.progress[0].progress.done == 4_999
    assert progress.progress[0].checkpoint == b"kept"
    runner.close()
