"""No read of any service shows a viewer without `see_payloads` what may be a secret."""

from __future__ import annotations

from google.protobuf.message import Message

from raftsched.proto.contract import Method, methods
from raftsched.proto.v1 import (
    access_pb2,
    alert_pb2,
    alert_pb2_grpc,
    common_pb2,
    job_pb2,
    run_pb2,
    run_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)

from .conftest import Served, Start
from .talk import Anything, refused
from .test_auth import Role, access, bearer, jobs, make

MARK = "XmarkX"
PAYLOAD = common_pb2.Payload(data=MARK.encode(), content_type="text/plain")
URL = f"https://me:{MARK}@h.example/a?key={MARK}#{MARK}"
SECRETS = {"name": MARK}
ACTIONS = {
    "by-http": job_pb2.Action(http=job_pb2.HttpAction(url=URL, headers=SECRETS)),
    "by-grpc": job_pb2.Action(
        grpc=job_pb2.GrpcAction(target="h.example:1", method="p.S/M", metadata=SECRETS)
    ),
    "by-shell": job_pb2.Action(shell=job_pb2.ShellAction(argv=["curl", MARK], environment=SECRETS)),
    "by-hand": job_pb2.Action(handler="work"),
}
NAMED = {"namespace": "default", "queue": "default", "calendar": "days", "flow": "f"}


async def test_no_read_shows_a_secret(start: Start) -> None:
    served = await start("a")
    root = bearer(await make(served, "root", Role.ROLE_ADMIN))
    runs = await plant(served, root)
    last = served.node.revision
    viewer = bearer(await make(served, "look", Role.ROLE_VIEWER, root[0][1][len("Bearer ") :]))
    reader = bearer(
        await make(served, "see", Role.ROLE_VIEWER, root[0][1][len("Bearer ") :], see_payloads=True)
    )

    shown: set[str] = set()
    for method in methods():
        if not method.harmless or method.needs != Role.ROLE_VIEWER:
            continue
        for request in requests(method, runs):
            for who, metadata in (("viewer", viewer), ("reader", reader), ("root", root)):
                answer = await ask(served, method, request, metadata, last)
                if MARK.encode() in answer:
                    assert who != "viewer", (method.name, request, answer)
                    shown.add(method.name)

    # It was there to be seen.
    assert shown >= {
        "JobService/GetJob", "JobService/ListJobs", "RunService/GetRun", "EventService/ListEvents",
        "EventService/WatchEvents", "DeadLetterService/GetDeadLetter", "RunService/WaitRun",
        "DeadLetterService/ListDeadLetters", "RunService/ListRuns", "AlertService/ListAlerts",
    }  # fmt: skip


async def test_the_audit_log_holds_no_secret_for_anybody(start: Start) -> None:
    served = await start("a")
    root = bearer(await make(served, "root", Role.ROLE_ADMIN))
    await plant(served, root)
    found = await access(served).ListAuditRecords(
        access_pb2.ListAuditRecordsRequest(), metadata=root
    )
    assert len(found.records) > 5
    assert MARK.encode() not in found.SerializeToString()


async def plant(served: Served, root: Anything) -> list[str]:
    """Put a secret wherever there is room for one; the runs."""
    overlap = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    retry = job_pb2.RetryPolicy(max_attempts=1)
    for name, action in ACTIONS.items():
        spec = job_pb2.JobSpec(action=action, payload=PAYLOAD, overlap=overlap, retry=retry)
        job = job_pb2.Job(name=name, spec=spec)
        await jobs(served).CreateJob(job_pb2.CreateJobRequest(job=job), metadata=root)
        # So that the audit log tells of a change.
        job.spec.action.http.headers["other"] = MARK
        job.spec.action.http.url = URL
        job.spec.action.CopyFrom(action) if name != "by-http" else None
        await jobs(served).UpdateJob(job_pb2.UpdateJobRequest(job=job), metadata=root)
    ids = []
    for _ in range(3):
        run = await jobs(served).TriggerJob(
            job_pb2.TriggerJobRequest(job="by-hand", payload=PAYLOAD), metadata=root
        )
        ids.append(run.id)
    alerts: Anything = alert_pb2_grpc.AlertServiceStub(served.channel)
    for path in (MARK, "another"):
        alert = alert_pb2.Alert(
            namespace="default", name="dead", webhook=f"https://chat.example/{path}/{MARK}",
            condition=alert_pb2.AlertCondition(dead_letters_above=0),
        )  # fmt: skip
        await alerts.PutAlert(alert_pb2.PutAlertRequest(alert=alert), metadata=root)
    workers: Anything = worker_pb2_grpc.WorkerServiceStub(served.channel)
    lease = worker_pb2.LeaseRequest(hello=worker_pb2.WorkerHello(worker="w", slots=3), maximum=1)
    lease.wait.FromSeconds(10)
    [first] = (await workers.Lease(lease, metadata=root)).leases
    [second] = (await workers.Lease(lease, metadata=root)).leases
    good = worker_pb2.Success(result=PAYLOAD)
    error = run_pb2.RunError(kind="http.503", message=f"answered {MARK}", trace=MARK)
    bad = worker_pb2.Failure(error=error, fatal=True)
    log = MARK.encode()
    results = [
        worker_pb2.Result(run=first.run, token=first.token, success=good, log_tail=log),
        worker_pb2.Result(run=second.run, token=second.token, failure=bad, log_tail=log),
    ]
    report = worker_pb2.ReportResultsRequest(worker="w", results=results)
    answer = await workers.ReportResults(report, metadata=root)
    assert [ack.reason for ack in answer.acks] == ["", ""]
    ended = [first.run, second.run]
    return ended + [run for run in ids if run not in ended]


def requests(method: Method, runs: list[str]) -> list[Message]:
    """One for each thing that the method may be asked about."""
    fields = method.request.DESCRIPTOR.fields_by_name
    said: Anything = {name: value for name, value in NAMED.items() if name in fields}
    if method.name == "RunService/WaitRun":
        runs = runs[:2]  # The others do not end.
    if "after" in fields:
        return [method.request(**said, after=common_pb2.Revision())]
    for field, names in (("job", list(ACTIONS)), ("run", runs)):
        if field in fields:
            return [method.request(**said, **{field: name}) for name in names]
    return [method.request(**said)]


async def ask(
    served: Served, method: Method, request: Message, metadata: Anything, last: int
) -> bytes:
    """The bytes of the answer, or of the refusal; of a watch as far as a revision."""
    if not method.streams:
        call: Anything = served.channel.unary_unary(method.path)
        try:
            return bytes(await call(request.SerializeToString(), metadata=metadata))
        except Exception as error:
            return str(error).encode()
    watch: Anything = served.channel.unary_stream(method.path)
    stream = watch(request.SerializeToString(), metadata=metadata)
    found = b""
    while True:
        frame = bytes(await stream.read())
        found += frame
        if method.response.FromString(frame).progress.change >= last:  # type: ignore[attr-defined]
            stream.cancel()
            return found


async def test_what_is_hidden_cannot_be_searched(start: Start) -> None:
    served = await start("a")
    root = bearer(await make(served, "root", Role.ROLE_ADMIN))
    admin = root[0][1][len("Bearer ") :]
    viewer = bearer(await make(served, "look", Role.ROLE_VIEWER, admin))
    reader = bearer(await make(served, "see", Role.ROLE_VIEWER, admin, see_payloads=True))
    runs = run_pb2_grpc.RunServiceStub(served.channel)
    searched = run_pb2.ListRunsRequest(filter=f"state=FAILED OR NOT error:{MARK}")

    refusal = await refused(runs.ListRuns(searched, metadata=viewer))

    assert refusal.reason == "FORBIDDEN"
    assert "may not search error" in refusal.message
    await runs.ListRuns(searched, metadata=reader)
    await runs.ListRuns(run_pb2.ListRunsRequest(filter="kind:Error"), metadata=viewer)
