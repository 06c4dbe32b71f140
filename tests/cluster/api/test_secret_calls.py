"""Secrets for targets, by the services: in through PutSecret, out through a worker's lease, and
nowhere else."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.protobuf.message import Message

from raftsched.cluster.api import secret_calls
from raftsched.cluster.node.secret_keys import SecretKey, SecretKeys
from raftsched.proto.v1 import (
    access_pb2,
    job_pb2,
    namespace_pb2,
    namespace_pb2_grpc,
    secret_pb2,
    secret_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.rejection import Refused
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import SecretRecord, encode, parse
from raftsched.statemachine.model.request import StoreSecret

from .conftest import Served, Start
from .talk import Anything, refused, until
from .test_auth import Role, access, bearer, jobs, make

VALUE = "XplainX text ä"
OLD, NEW = SecretKey(b"a" * 32), SecretKey(b"b" * 32)
WAIT_S = 10


def give_keys(served: Served, *found: SecretKey) -> None:
    served.node.secret_keys.keys = found


def secrets_of(served: Served) -> Anything:
    return secret_pb2_grpc.SecretServiceStub(served.channel)


def workers(served: Served) -> Anything:
    return worker_pb2_grpc.WorkerServiceStub(served.channel)


def putting(name: str = "api-key", value: str = VALUE, **more: Anything) -> Anything:
    secret = secret_pb2.Secret(name=name, namespace=more.pop("namespace", ""))
    return secret_pb2.PutSecretRequest(secret=secret, value=value, **more)


async def put(served: Served, *words: str, metadata: Anything = (), **more: Anything) -> Message:
    answer: Message = await secrets_of(served).PutSecret(putting(*words, **more), metadata=metadata)
    return answer


async def leased(
    served: Served, *names: str, namespace: str = "", worker: str = "w1", metadata: Anything = (),
    root: Anything = (),
) -> worker_pb2.Lease:  # fmt: skip
    """A lease of a job that names these secrets."""
    action = job_pb2.Action(http=job_pb2.HttpAction(url="http://h.example/"))
    for name in names:
        action.http.headers[name] = f"secret://{name}"
    job = job_pb2.Job(
        name=f"call-{worker}", namespace=namespace, spec=job_pb2.JobSpec(action=action)
    )
    await jobs(served).CreateJob(job_pb2.CreateJobRequest(job=job), metadata=root)
    request = job_pb2.TriggerJobRequest(job=job.name, namespace=namespace)
    await jobs(served).TriggerJob(request, metadata=root)
    hello = worker_pb2.WorkerHello(
        worker=worker, namespaces=[namespace or "default"], handlers=["http"]
    )
    lease = worker_pb2.LeaseRequest(hello=hello, maximum=1)
    lease.wait.FromSeconds(WAIT_S)
    [found] = (await workers(served).Lease(lease, metadata=metadata)).leases
    assert isinstance(found, worker_pb2.Lease)
    return found


def resolving(lease: worker_pb2.Lease, worker: str = "w1") -> worker_pb2.ResolveSecretsRequest:
    return worker_pb2.ResolveSecretsRequest(worker=worker, run=lease.run, token=lease.token)


def everything(served: Served) -> bytes:
    """All that is stored, and all that the log holds."""
    found = served.node.replica.store.scan(b"\0", b"\xff" * 64)
    state = b"".join(key + value for key, value in found)
    return state + b"".join(entry.data for entry in served.node.journal.kept)


async def test_a_worker_gets_it_and_nothing_else_has_it(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    served = await start("a")
    give_keys(served, NEW)
    made = await put(served, request_id="r1")
    lease = await leased(served, "api-key")

    answer = await workers(served).ResolveSecrets(resolving(lease))

    assert dict(answer.secrets) == {"api-key": VALUE}
    assert made == await secrets_of(served).GetSecret(secret_pb2.GetSecretRequest(secret="api-key"))
    shown = made.SerializeToString()
    for mark in (b"XplainX", VALUE.encode(), VALUE.encode()[::-1]):
        assert mark not in everything(served)
        assert mark not in shown
    assert "XplainX" not in caplog.text
    page = await access(served).ListAuditRecords(access_pb2.ListAuditRecordsRequest())
    noted = [one for one in page.records if one.method == "ResolveSecrets"]
    assert [(one.subject, one.change) for one in noted] == [
        ("secret/api-key", f"for the run {lease.run}, on the worker w1")
    ]
    assert b"XplainX" not in page.SerializeToString()


async def test_the_same_request_is_done_once_and_its_value_is_no_fingerprint(start: Start) -> None:
    served = await start("a")
    give_keys(served, OLD)
    made = await put(served, request_id="r1")
    give_keys(served, NEW, OLD)
    assert await put(served, request_id="r1") == made
    again = await refused(put(served, "api-key", "XotherX", request_id="r1"))
    assert again.reason == "REQUEST_ID_REUSED"
    assert "XotherX" not in again.message


async def test_of_puts_at_once_each_is_bound_to_its_own_version(start: Start) -> None:
    """What was encrypted for a version that is taken meanwhile is encrypted again."""
    served = await start("a")
    give_keys(served, NEW)
    gate = served.node.gate
    gate.clear()
    asked = asyncio.gather(*(put(served, "api-key", f"{VALUE} {number}") for number in range(3)))
    # All of them were encrypted for the first version.
    await until(lambda: len(gate._waiters) == 3)
    gate.set()
    made: Anything = await asked
    assert sorted(one.value_version for one in made) == [1, 2, 3]
    last = next(number for number, one in enumerate(made) if one.value_version == 3)
    lease = await leased(served, "api-key")
    answer = await workers(served).ResolveSecrets(resolving(lease))
    assert dict(answer.secrets) == {"api-key": f"{VALUE} {last}"}
    sent = [one for one in served.node.written if isinstance(one, StoreSecret)]
    assert len(sent) > 3  # Some had to try again.


async def test_nothing_is_stored_on_trial(start: Start) -> None:
    served = await start("a")
    give_keys(served, NEW)
    made = await put(served, validate_only=True)
    assert getattr(made, "value_version", 0) == 1
    request = secret_pb2.GetSecretRequest(secret="api-key")
    assert (await refused(secrets_of(served).GetSecret(request))).reason == "SECRET_NOT_FOUND"


async def test_a_follower_passes_it_on(start: Start) -> None:
    leader = await start("a")
    follower = await start("b")
    give_keys(leader, NEW)
    await put(follower)
    lease = await leased(follower, "api-key")
    assert dict((await workers(follower).ResolveSecrets(resolving(lease))).secrets) == {
        "api-key": VALUE
    }


# Keys.


async def test_a_leader_without_a_key_says_what_to_write(start: Start) -> None:
    served = await start("a")
    for call in (put(served), secrets_of(served).RekeySecrets(secret_pb2.RekeySecretsRequest())):
        found = await refused(call)
        assert (found.code, found.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION, "SECRET_KEY_MISSING",
        )  # fmt: skip
        assert "[secrets] key_file = FILE" in found.message
        assert "openssl rand -base64 32" in found.message
        assert VALUE not in found.message


async def test_a_member_that_lacks_the_key_is_named(start: Start) -> None:
    served = await start("a")
    give_keys(served, NEW)
    served.node.lacking[NEW.id] = "n3"
    found = await refused(put(served))
    assert (found.reason, found.values["member"]) == ("MEMBER_LACKS", "n3")
    assert NEW.id in found.message


async def test_a_member_of_a_version_before_refuses_it(start: Start) -> None:
    served = await start("a")
    give_keys(served, NEW)
    served.node.levels["b"] = 3
    for call in (put(served), secrets_of(served).RekeySecrets(secret_pb2.RekeySecretsRequest())):
        assert (await refused(call)).reason == "MEMBER_LACKS"
    served.node.levels["b"] = 4
    await put(served)


async def test_another_leader_needs_the_same_key(start: Start) -> None:
    """As after a restore into a cluster without it."""
    served = await start("a")
    give_keys(served, OLD)
    await put(served)
    lease = await leased(served, "api-key")
    for others in ((), (NEW,)):
        give_keys(served, *others)
        found = await refused(workers(served).ResolveSecrets(resolving(lease)))
        assert (found.reason, found.values) == (
            "SECRET_KEY_MISSING", {"node": "a", "key_id": OLD.id},
        )  # fmt: skip
    assert (await secrets_of(served).ListSecrets(secret_pb2.ListSecretsRequest())).secrets
    give_keys(served, NEW, OLD)
    assert dict((await workers(served).ResolveSecrets(resolving(lease))).secrets)


@pytest.mark.parametrize("how", ["tampered", "swapped", "version"])
async def test_what_was_changed_in_the_state_is_not_given(start: Start, how: str) -> None:
    served = await start("a")
    give_keys(served, NEW)
    await put(served)
    await put(served, "other", "of the other")
    lease = await leased(served, "api-key")
    store = served.node.replica.store
    place, other = keys.target_secret(0, "api-key"), keys.target_secret(0, "other")
    record, of_other = (parse(key, store.get(key) or b"", SecretRecord) for key in (place, other))
    if how == "tampered":
        record.sealed = record.sealed[:-1] + bytes([record.sealed[-1] ^ 1])
    elif how == "swapped":
        record.sealed = of_other.sealed
    else:
        record.value_version = 2
    store.write([(place, encode(record))], [])

    found = await refused(workers(served).ResolveSecrets(resolving(lease)))

    assert found.reason == "SECRET_KEY_MISSING"
    assert "what is stored is not what was encrypted for it" in found.message
    assert "of the other" not in found.message


async def test_they_are_put_under_the_newest_key_in_steps(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REKEYED", 2)
    served = await start("a")
    give_keys(served, OLD)
    for number in range(5):
        await put(served, f"s{number}", f"{VALUE} {number}")
    lease = await leased(served, "s3")
    gone = SecretKey(b"c" * 32)
    give_keys(served, gone)
    await put(served, "lost", VALUE)
    give_keys(served, NEW, OLD)

    steps, token, done, unopened = 0, "", 0, 0
    while steps == 0 or token:
        request = secret_pb2.RekeySecretsRequest(page_token=token)
        answer = await secrets_of(served).RekeySecrets(request)
        steps, token, done = steps + 1, answer.next_page_token, done + answer.rekeyed
        unopened += answer.unopened
        assert set(answer.missing_key_ids) <= {gone.id}

    assert (steps, done, unopened) == (3, 5, 1)
    listed = (await secrets_of(served).ListSecrets(secret_pb2.ListSecretsRequest())).secrets
    assert {one.name: one.key_id for one in listed} == {
        "lost": gone.id, **{f"s{number}": NEW.id for number in range(5)},
    }  # fmt: skip
    give_keys(served, NEW)
    assert dict((await workers(served).ResolveSecrets(resolving(lease))).secrets) == {
        "s3": f"{VALUE} 3"
    }
    wrong = secret_pb2.RekeySecretsRequest(page_token="x")
    assert (await refused(secrets_of(served).RekeySecrets(wrong))).reason == "PAGE_TOKEN_INVALID"


async def test_a_step_of_rekeying_is_bounded_in_bytes(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REKEYED_BYTES", 100_000)
    served = await start("a")
    give_keys(served, OLD)
    for number in range(4):
        await put(served, f"s{number}", "x" * 60_000)
    give_keys(served, NEW, OLD)
    answer = await secrets_of(served).RekeySecrets(secret_pb2.RekeySecretsRequest())
    assert (answer.rekeyed, bool(answer.next_page_token)) == (2, True)


# Who.


async def test_roles(start: Start) -> None:
    served = await start("a")
    give_keys(served, NEW)
    secret = await make(served, "root", Role.ROLE_ADMIN)
    root = bearer(secret)
    await put(served, metadata=root)
    own = {"metadata": root, "namespace": "default"}
    for role in (Role.ROLE_EDITOR, Role.ROLE_WORKER, Role.ROLE_VIEWER):
        metadata = bearer(await make(served, f"t{role}", role, secret))
        assert (await refused(put(served, "mine", metadata=metadata))).reason == "FORBIDDEN"
        for request, call in (
            (secret_pb2.DeleteSecretRequest(secret="api-key"), "DeleteSecret"),
            (secret_pb2.RekeySecretsRequest(), "RekeySecrets"),
        ):
            asked = getattr(secrets_of(served), call)(request, metadata=metadata)
            assert (await refused(asked)).reason == "FORBIDDEN"
        page = await secrets_of(served).ListSecrets(
            secret_pb2.ListSecretsRequest(), metadata=metadata
        )
        assert [one.name for one in page.secrets] == ["api-key"]
        if role == Role.ROLE_VIEWER:
            asked = workers(served).ResolveSecrets(
                worker_pb2.ResolveSecretsRequest(worker="w1", run="call.1.2", token=1),
                metadata=metadata,
            )
            assert (await refused(asked)).reason == "FORBIDDEN"
    admin = bearer(await make(served, "of-one", Role.ROLE_ADMIN, secret, namespace="default"))
    await put(served, "theirs", metadata=admin)
    rekey = secrets_of(served).RekeySecrets(secret_pb2.RekeySecretsRequest(), metadata=admin)
    assert (await refused(rekey)).reason == "FORBIDDEN"
    assert own


async def test_a_worker_of_another_namespace_learns_nothing(start: Start) -> None:
    served = await start("a")
    give_keys(served, NEW)
    spaces: Anything = namespace_pb2_grpc.NamespaceServiceStub(served.channel)
    team = namespace_pb2.Namespace(name="team")
    await spaces.CreateNamespace(namespace_pb2.CreateNamespaceRequest(namespace=team))
    secret = await make(served, "root", Role.ROLE_ADMIN)
    root = bearer(secret)
    own = bearer(await make(served, "w", Role.ROLE_WORKER, secret, namespace="default"))
    other = bearer(await make(served, "o", Role.ROLE_WORKER, secret, namespace="team"))
    everywhere = bearer(await make(served, "e", Role.ROLE_WORKER, secret))
    await put(served, metadata=root)
    await put(served, "api-key", "of the team", namespace="team", metadata=root)
    lease = await leased(served, "api-key", metadata=own, root=root)

    for metadata, reason in ((other, "RUN_NOT_FOUND"), (everywhere, "LEASE_LOST")):
        asked = workers(served).ResolveSecrets(resolving(lease), metadata=metadata)
        assert (await refused(asked)).reason == reason
    answer = await workers(served).ResolveSecrets(resolving(lease), metadata=own)
    assert dict(answer.secrets) == {"api-key": VALUE}


async def test_a_lease_that_has_ended_gets_nothing(start: Start) -> None:
    served = await start("a")
    give_keys(served, NEW)
    await put(served)
    lease = await leased(served, "api-key")
    done = worker_pb2.CompleteRequest(run=lease.run, token=lease.token)
    await workers(served).Complete(done)
    found = await refused(workers(served).ResolveSecrets(resolving(lease)))
    assert found.reason == "LEASE_LOST"
    for worker in ("w2", ""):
        found = await refused(workers(served).ResolveSecrets(resolving(lease, worker)))
        assert found.reason == "LEASE_LOST"


async def test_a_worker_that_asks_too_often_has_to_wait(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_calls, "RESOLVED_PER_S", 2)
    served = await start("a")
    calls = secret_calls.SecretCalls(served.node, clock=lambda: 0.0)
    for _ in range(2):
        calls._count("w1")
    with pytest.raises(Refused, match="of 2 leases a second"):
        calls._count("w1")
    calls._count("w2")


async def test_the_audit_log_has_each_job_and_worker_once_an_hour(start: Start) -> None:
    served = await start("a")
    now = [0.0]
    calls = secret_calls.SecretCalls(served.node, clock=lambda: now[0])
    assert calls._is_to_note((1, "w1", "a"))
    assert not calls._is_to_note((1, "w1", "a"))
    assert calls._is_to_note((1, "w2", "a"))
    assert calls._is_to_note((1, "w1", "b"))
    # No more than ten a second.
    assert sum(calls._is_to_note((number, "w1", "a")) for number in range(10, 40)) == 7
    now[0] = 3_600.0
    assert calls._is_to_note((1, "w1", "a"))


def test_a_key_file_is_optional() -> None:
    assert SecretKeys().ids == ()
