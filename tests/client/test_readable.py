"""What Python's prompt shows of messages: one line, with what one looks at first."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from raftsched.client import AsyncClient, Client, TaskRun
from raftsched.client.app.app import App
from raftsched.client.calls.aio.run import AsyncRun
from raftsched.client.sdk.readable import LINE_CHARS, mark
from raftsched.proto.v1 import access_pb2, common_pb2, job_pb2, options_pb2, queue_pb2, run_pb2

AT = Timestamp(seconds=1_800_000_000)
JSON = common_pb2.Payload(data=b'{"to":\n "ann"}', content_type="application/json")
JOB = job_pb2.Job(
    namespace="shop", name="report", etag="7",
    status=job_pb2.JobStatus(state=job_pb2.JobStatus.STATE_ACTIVE, next_due_time=AT, succeeded=3),
    spec=job_pb2.JobSpec(labels={"a": "b"}, payload=JSON),
)  # fmt: skip
FAILED = run_pb2.Run(
    namespace="shop", id="report.1.2", job="report", state=run_pb2.RUN_STATE_FAILED, attempt=2,
    error=run_pb2.RunError(kind="ValueError", message="no\n\x1b[31m"), due_time=AT,
)  # fmt: skip
DONE = run_pb2.Run(
    id="report.1.2", state=run_pb2.RUN_STATE_SUCCEEDED, attempt=1, result=JSON,
    start_time=AT, end_time=Timestamp(seconds=AT.seconds + 2, nanos=500_000_000),
)  # fmt: skip
TOKEN = access_pb2.AccessToken(name="ci", role=options_pb2.ROLE_EDITOR)
FAR = run_pb2.Run(id="x", due_time=Timestamp(seconds=1 << 60))


@pytest.mark.parametrize(("message", "shown"), [
    (JOB, "<Job report ACTIVE, next Fri 2027-01-15 08:00 UTC, 3 succeeded, 0 failed>"),
    (job_pb2.Job(name="report"), "<Job report>"),
    (JOB.spec, '<JobSpec 1 label, payload={"to": "ann"}>'),
    (FAILED, r"<Run report.1.2 FAILED, attempt 2, ValueError: no \x1b[31m, "
             "due Fri 2027-01-15 08:00 UTC>"),
    (DONE, '<Run report.1.2 SUCCEEDED, result {"to": "ann"}, took 2.5 s>'),
    (FAR, f"<Run x, due second {1 << 60}>"),
    (run_pb2.Run(result=common_pb2.Payload(hidden=True)), "<Run , result (hidden)>"),
    (job_pb2.ListJobsResponse(jobs=[JOB, JOB]), "<ListJobsResponse 2 jobs>"),
    (queue_pb2.Queue(name="mail", ready=3, paused=True), "<Queue mail: paused, ready=3>"),
    (access_pb2.CreateAccessTokenResponse(secret="s3cret", access_token=TOKEN),
     "<CreateAccessTokenResponse access_token=<AccessToken ci: role=EDITOR>, secret (hidden)>"),
    (job_pb2.Timeouts(attempt=Duration(seconds=90)), "<Timeouts attempt=0:01:30>"),
])  # fmt: skip
def test_a_message_is_one_line(message: Message, shown: str) -> None:
    mark(type(message))

    assert repr(message) == shown
    # What `print` shows is what protobuf writes: all of it.
    assert "<" not in str(message)


def test_a_line_has_an_end() -> None:
    mark(run_pb2.Run)
    long = run_pb2.Run(id="i" * 500, error=run_pb2.RunError(kind="E", message="m" * 10_000))

    assert len(repr(long)) <= LINE_CHARS + len("<Run >")


async def test_a_run_says_where_it_stands() -> None:
    app = App("127.0.0.1:1")
    task = app.task(name="report")(_nothing)
    with Client("127.0.0.1:1") as client:
        assert repr(TaskRun(task, client, DONE)).startswith("<TaskRun report.1.2 SUCCEEDED, res")
    async with AsyncClient("127.0.0.1:1") as asking:
        assert repr(AsyncRun(asking, FAILED)).startswith("<AsyncRun report.1.2 FAILED, attempt 2")


def _nothing() -> None: ...
