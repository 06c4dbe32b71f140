"""What may hold a secret is hidden from viewers without `see_payloads`, wherever it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from raftsched.proto.contract import methods
from raftsched.proto.v1 import alert_pb2, common_pb2, job_pb2, run_pb2, secret_pb2
from raftsched.statemachine.model import hiding
from raftsched.statemachine.tenants.audit_log import difference

from ..rows import each
from .driver import Machine, job_of

MARK = "XmarkX"
MEANS_SECRET = (
    "url", "header", "metadata", "environment", "argv", "webhook", "secret", "password", "payload",
    "result", "log", "checkpoint", "target", "credential", "authorization",
)  # fmt: skip
# They are for admins alone.
HARMLESS = {
    "raftsched.v1.CreateAccessTokenResponse.secret",  # What they asked for.
    "raftsched.v1.RotateAccessTokenResponse.secret",  # The same.
    "raftsched.v1.BackupResponse.data",  # The whole state.
}


def fields_of(kind: Any, seen: set[str]) -> Iterator[Any]:  # noqa: ANN401
    if kind.full_name in seen:
        return
    seen.add(kind.full_name)
    for field in kind.fields:
        yield field
        if field.message_type is not None:
            yield from fields_of(field.message_type, seen)


def all_fields() -> list[Any]:
    seen: set[str] = set()
    return [field for method in methods() for field in fields_of(method.response.DESCRIPTOR, seen)]


def test_every_field_that_may_hold_a_secret_stands_in_the_table() -> None:
    """A new field of bytes, or one that is called like a secret, needs a decision."""
    open_ = []
    for field in all_fields():
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        text = field.type in (field.TYPE_STRING, field.TYPE_BYTES) or is_map
        suspect = field.type == field.TYPE_BYTES or any(word in field.name for word in MEANS_SECRET)
        inside = field.containing_type.full_name == "raftsched.v1.Payload"
        decided = field.name in hiding.WRITTEN or field.full_name in {*hiding.FIELDS, *HARMLESS}
        if text and suspect and not inside and not decided:
            open_.append(field.full_name)
    assert open_ == []
    assert set(hiding.FIELDS) <= {field.full_name for field in all_fields()}


# What may be known of a secret for targets: a new field of its messages needs a decision.
KNOWN_OF_SECRETS = {
    "raftsched.v1.Secret": {
        "namespace", "name", "labels", "value_version", "key_id", "updater", "create_time",
        "update_time", "etag",
    },
    "raftsched.v1.ListSecretsResponse": {"secrets", "next_page_token"},
    "raftsched.v1.DeleteSecretResponse": set(),
    "raftsched.v1.RekeySecretsResponse": {
        "rekeyed", "unopened", "key_id", "missing_key_ids", "next_page_token",
    },
}  # fmt: skip


def test_no_message_of_secrets_has_room_for_a_value_but_those_that_carry_it() -> None:
    """In by PutSecretRequest.value, out by ResolveSecretsResponse.secrets."""
    for name, known in KNOWN_OF_SECRETS.items():
        found = secret_pb2.DESCRIPTOR.message_types_by_name[name.rpartition(".")[2]]
        assert {field.name for field in found.fields} == known
    answers = {method.response.DESCRIPTOR.full_name for method in methods()
               if method.name.startswith("SecretService/")}  # fmt: skip
    assert answers == KNOWN_OF_SECRETS.keys()
    for method in methods():
        names = {field.full_name for field in fields_of(method.response.DESCRIPTOR, set())}
        assert "raftsched.v1.PutSecretRequest.value" not in names
        carries = "raftsched.v1.ResolveSecretsResponse.secrets" in names
        assert carries == (method.name == "WorkerService/ResolveSecrets")


def fill(message: Message, depth: int = 0) -> None:
    """Set every field: where a secret may stand the mark, as hidden as somebody may have put it."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        inner = field.message_type
        if inner is not None and inner.full_name.startswith("google."):
            continue
        if inner is not None and inner.GetOptions().map_entry:
            if field.full_name in hiding.FIELDS:
                value["name"] = MARK
            elif inner.fields_by_name["value"].message_type is not None:
                fill(value["key"], depth + 1)
        elif inner is not None:
            if depth < 9:
                fill(value.add() if field.is_repeated else value, depth + 1)
        elif field.type == field.TYPE_BYTES:
            setattr(message, field.name, MARK.encode())
        elif field.full_name == "raftsched.v1.ShellAction.argv":
            value.extend(["curl", MARK])
        elif field.full_name == "raftsched.v1.Alert.webhook":
            setattr(message, field.name, f"https://chat.example/{MARK}")
        elif field.full_name in hiding.FIELDS:
            setattr(message, field.name, f"https://me:{MARK}@h.example/a?key={MARK}#{MARK}")


# A backup is the whole state, for admins of all of it.
SHOWN = sorted(m.name for m in methods() if m.harmless and m.verb != "Backup")


@each("name", SHOWN)
def test_no_answer_shows_a_secret(name: str) -> None:
    [method] = [one for one in methods() if one.name == name]
    actions = ("http", "grpc", "shell")
    for action in actions:
        answer = method.response()
        fill(answer)
        for job in jobs_in(answer):
            # Of a oneof only the last that is set stays.
            fill(getattr(job.spec.action, action))
        hiding.hide(answer)
        assert MARK.encode() not in answer.SerializeToString(), (name, action, answer)


def jobs_in(message: Message) -> Iterator[job_pb2.Job]:
    if isinstance(message, job_pb2.Job):
        yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for one in value if field.is_repeated else (value,):
            yield from jobs_in(one)


def test_what_stays_says_who_is_called() -> None:
    assert hiding.bare("https://h.example:8/a/b") == "https://h.example:8/a/b"
    assert hiding.bare("https://me:pw@h/a?k=v#f") == "https://(hidden)@h/a?(hidden)"
    assert hiding.bare("10.0.0.1:50051") == "10.0.0.1:50051"
    assert hiding.bare("dns:///me:pw@h:1") == "dns:///(hidden)@h:1"
    assert hiding.host_only("https://me:pw@hooks.example/services/T/B") == (
        "https://hooks.example/(hidden)"
    )
    assert hiding.host_only("https://hooks.example/") == "https://hooks.example"
    job = job_pb2.Job()
    job.spec.action.shell.argv.extend(["curl", "-u", "me:pw"])
    hiding.hide(job)
    assert list(job.spec.action.shell.argv) == ["curl", "(hidden)", "(hidden)"]
    job.spec.action.shell.use_shell = True
    del job.spec.action.shell.argv[:]
    job.spec.action.shell.argv.append("curl -u me:pw")
    hiding.hide(job)
    assert list(job.spec.action.shell.argv) == ["(hidden)"]


def test_what_a_worker_says_of_an_error_is_hidden_and_what_the_cluster_says_is_not() -> None:
    """It may repeat arguments, the body of an answer, or what a command printed."""
    for kind in ("exit.1", "http.503", "ValueError", ""):
        run = run_pb2.Run(error=run_pb2.RunError(kind=kind, message=MARK, trace=MARK))
        run.attempts.add().error.CopyFrom(run.error)
        hiding.hide(run)
        assert run.error == run_pb2.RunError(kind=kind, message="(hidden)", trace="(hidden)")
        assert run.attempts[0].error == run.error
    lapsed = run_pb2.RunError(kind="lapsed", message="the worker w1 was silent for too long")
    run = run_pb2.Run(error=lapsed)
    hiding.hide(run)
    assert run.error == lapsed


def test_what_is_hidden_does_not_look_like_none(machine: Machine) -> None:
    """A viewer's export that an editor imported would drop the payload."""
    job = job_of("call")
    job.spec.payload.data = MARK.encode()
    machine.do(job_pb2.CreateJobRequest(job=job))
    seen = job_pb2.Job()
    seen.CopyFrom(job)
    hiding.hide(seen)
    run = run_pb2.Run(log_tail=MARK.encode())
    hiding.hide(run)

    assert seen.spec.payload == common_pb2.Payload(hidden=True)
    assert run.log_tail == b"(hidden)\n"
    for request, field in (
        (job_pb2.UpdateJobRequest(job=seen), "spec.payload"),
        (job_pb2.TriggerJobRequest(job="call", payload=seen.spec.payload), "payload"),
    ):
        refusal = machine.refused(request)
        assert [fault.field for fault in refusal.faults] == [field]
        assert "(hidden)" in refusal.message
    batch = job_pb2.ImportJobsRequest(mode=job_pb2.ImportJobsRequest.MODE_UPSERT)
    batch.jobs.append(seen)
    answer = machine.do(batch)
    assert isinstance(answer, job_pb2.ImportJobsResponse)
    assert answer.results[0].verdict == job_pb2.ImportResult.VERDICT_REFUSED


def test_every_value_of_a_map_is_hidden() -> None:
    for count in range(1, 40):
        action = job_pb2.HttpAction(headers={f"name-{number}": MARK for number in range(count)})
        hiding.hide(action)
        assert dict(action.headers) == {f"name-{number}": "(hidden)" for number in range(count)}


def test_the_audit_log_writes_no_secret_down() -> None:
    for action in ("http", "grpc", "shell"):
        before, after = job_pb2.JobSpec(), job_pb2.JobSpec()
        fill(getattr(before.action, action))
        said = difference(before, after, "spec.") + difference(after, before, "spec.")
        assert MARK not in said, said
        assert f"spec.action.{action}." in said, said
    alert = alert_pb2.Alert(webhook=f"https://chat.example/{MARK}")
    said = difference(alert_pb2.Alert(), alert)
    assert said == "webhook:  to https://chat.example/(hidden)"
    other = alert_pb2.Alert(webhook="https://chat.example/another")
    assert difference(alert, other) == "webhook: changed"


def test_what_was_hidden_is_not_taken_for_a_value(machine: Machine) -> None:
    """A viewer's export that an editor imports would overwrite the secrets."""
    job = job_of("call")
    job.spec.action.http.url = "https://example.com/hook?key=word"
    job.spec.action.http.headers["authorization"] = "Bearer word"
    machine.do(job_pb2.CreateJobRequest(job=job))
    seen = job_pb2.Job()
    seen.CopyFrom(job)
    hiding.hide(seen)

    refusal = machine.refused(job_pb2.UpdateJobRequest(job=seen))

    assert [fault.field for fault in refusal.faults] == [
        "spec.action.http.url", "spec.action.http.headers",
    ]  # fmt: skip
    assert "(hidden)" in refusal.faults[0].message
    batch = job_pb2.ImportJobsRequest(mode=job_pb2.ImportJobsRequest.MODE_UPSERT)
    batch.jobs.append(seen)
    answer = machine.do(batch)
    assert isinstance(answer, job_pb2.ImportJobsResponse)
    assert answer.results[0].verdict == job_pb2.ImportResult.VERDICT_REFUSED


def test_a_hidden_webhook_is_not_taken_for_an_address(machine: Machine) -> None:
    alert = alert_pb2.Alert(name="late", webhook="https://chat.example.com/secret")
    alert.condition.dead_letters_above = 1
    hiding.hide(alert)

    refusal = machine.refused(alert_pb2.PutAlertRequest(alert=alert))

    assert [fault.field for fault in refusal.faults] == ["alert.webhook"]
