"""Secrets for targets, as the rules see them: encrypted, named by jobs, given to leases."""

from __future__ import annotations

from typing import Any

import pytest

from raftsched.proto import secret_text
from raftsched.proto.v1 import job_pb2, namespace_pb2, secret_pb2, worker_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.model.request import (
    ResealSecrets,
    ResolveSecrets,
    SealedPlace,
    SealedSecret,
    SecretChanged,
    StoreSecret,
)
from raftsched.statemachine.selfcheck import verify
from raftsched.statemachine.tenants import target_secrets

from ..rows import each
from .asking import ask, pages
from .driver import Machine, image, job_of

Anything = Any
Secret = secret_pb2.Secret


def order(
    machine: Machine, name: str = "api-key", data: bytes = b"sealed", *, namespace: str = "",
    request_id: str = "", digests: tuple[bytes, ...] = (b"d" * 16,), **fields: Anything,
) -> StoreSecret:  # fmt: skip
    """A secret as a node would have encrypted it now."""
    secret = Secret(namespace=namespace, name=name, **fields)
    request = secret_pb2.PutSecretRequest(secret=secret, request_id=request_id)
    place = target_secrets.next_place(machine.view(), secret)
    sealed = SealedSecret(place, "k1", data) if data else None
    return StoreSecret(request, digests, sealed)


def put(
    machine: Machine, name: str = "api-key", data: bytes = b"sealed", **more: Anything
) -> Secret:
    return machine.ask(order(machine, name, data, **more), Secret, actor="root")


def calling(*names: str) -> job_pb2.Job:
    job = job_of("call")
    job.spec.action.http.url = "http://h.example/"
    for name in names:
        job.spec.action.http.headers[f"x-{name}"] = f"Bearer secret://{name}"
    return job


def create(machine: Machine, *names: str) -> job_pb2.Job:
    return machine.ask(job_pb2.CreateJobRequest(job=calling(*names)), job_pb2.Job)


def delete(name: str = "api-key", **more: Anything) -> secret_pb2.DeleteSecretRequest:
    return secret_pb2.DeleteSecretRequest(secret=name, **more)


def resolving(lease: worker_pb2.Lease, worker: str = "w1", *, noted: bool = True) -> ResolveSecrets:
    request = worker_pb2.ResolveSecretsRequest(worker=worker, run=lease.run, token=lease.token)
    return ResolveSecrets(request, noted)


def leased(machine: Machine) -> worker_pb2.Lease:
    machine.trigger("call")
    machine.fire()
    [lease] = machine.grant("w1", handlers=("http",))
    return lease


def notes(machine: Machine) -> list[tuple[str, str, str, str]]:
    from raftsched.proto.v1 import access_pb2

    answer = ask(machine, access_pb2.ListAuditRecordsRequest(), access_pb2.ListAuditRecordsResponse)
    return [(one.actor, one.method, one.subject, one.change) for one in answer.records]


# What is kept.


def test_a_secret_is_kept_with_what_may_be_known_of_it(machine: Machine) -> None:
    made = put(machine, labels={"team": "a"})
    machine.advance(1_000)
    again = put(machine, data=b"other", labels={"team": "b"})

    assert (made.value_version, made.key_id, made.updater, made.etag) == (1, "k1", "root", "v1")
    assert (again.value_version, again.etag, dict(again.labels)) == (2, "v2", {"team": "b"})
    assert again.create_time == made.create_time
    assert again.update_time.ToMilliseconds() == made.update_time.ToMilliseconds() + 1_000
    found = ask(machine, secret_pb2.GetSecretRequest(secret="api-key"), Secret)
    assert found == again
    assert b"other" not in found.SerializeToString()


def test_labels_change_without_a_value(machine: Machine) -> None:
    put(machine)
    changed = put(machine, data=b"", labels={"team": "b"})
    assert (changed.value_version, changed.etag) == (1, "v2")
    refused = machine.refused(order(machine, "new", b""))
    assert (refused.word, refused.values["field"]) == ("FIELD_REQUIRED", "value")


def test_an_etag_guards_it(machine: Machine) -> None:
    put(machine)
    assert machine.refused(order(machine, etag="v2")).word == "ETAG_MISMATCH"
    assert machine.refused(order(machine, "new", etag="v1")).word == "ETAG_MISMATCH"
    put(machine, etag="v1")
    assert machine.refused(delete(etag="v1")).word == "ETAG_MISMATCH"
    machine.do(delete(etag="v2"))


def test_what_was_encrypted_for_another_version_is_not_taken(machine: Machine) -> None:
    """Two puts at once: the second was bound to a version that is taken by now."""
    first, second = order(machine, data=b"one"), order(machine, data=b"two")
    machine.do(first)
    before = image(machine.store)
    assert isinstance(machine.do(second), SecretChanged)
    assert image(machine.store) == before
    moved = SealedPlace(0, "default", "other", 2)
    swapped = StoreSecret(second.request, second.digests, SealedSecret(moved, "k1", b"two"))
    assert isinstance(machine.do(swapped), SecretChanged)


def test_a_request_id_is_known_by_a_fingerprint_under_any_key_of_the_node(machine: Machine) -> None:
    made = put(machine, request_id="r1", digests=(b"old" * 5,))
    turned = (b"new" * 5, b"old" * 5)
    assert put(machine, request_id="r1", digests=turned) == made
    refused = machine.refused(order(machine, request_id="r1", digests=(b"new" * 5, b"any" * 5)))
    assert refused.word == "REQUEST_ID_REUSED"
    assert ask(machine, secret_pb2.GetSecretRequest(secret="api-key"), Secret) == made


def test_there_are_so_many_in_a_namespace(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SECRETS", 2)
    put(machine, "a")
    put(machine, "b")
    refused = machine.refused(order(machine, "c"))
    assert (refused.word, refused.values["limit"]) == ("LIMIT_EXCEEDED", "secrets")
    put(machine, "b", b"another value")


def test_they_are_listed_by_name_and_namespace(machine: Machine) -> None:
    team = namespace_pb2.Namespace(name="team")
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=team))
    for name in ("b", "a", "c"):
        put(machine, name)
    put(machine, "theirs", namespace="team")
    request = secret_pb2.ListSecretsRequest(page_size=2)
    answers = pages(machine, request, secret_pb2.ListSecretsResponse)
    assert [one.name for answer in answers for one in answer.secrets] == ["a", "b", "c"]
    request = secret_pb2.ListSecretsRequest(namespace="team")
    assert [one.name for one in ask(machine, request, secret_pb2.ListSecretsResponse).secrets] == [
        "theirs"
    ]


def test_they_go_with_their_namespace(machine: Machine) -> None:
    team = namespace_pb2.Namespace(name="team")
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=team))
    put(machine, data=b"of the former", namespace="team")
    machine.do(namespace_pb2.DeleteNamespaceRequest(namespace="team"))
    machine.advance(1)
    machine.fire()
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=team))
    request = secret_pb2.ListSecretsRequest(namespace="team")
    assert not ask(machine, request, secret_pb2.ListSecretsResponse).secrets
    assert not any(b"of the former" in value for value in image(machine.store).values())


@each(
    ("secret", "value", "field"),
    [
        (Secret(name="Api Key"), "x", "secret.name"),
        (Secret(), "x", "secret.name"),
        (Secret(name="a", labels={"A": "b"}), "x", "secret.labels[A]"),
        (Secret(name="a"), "x\0y", "value"),
        (Secret(name="a"), "ä" * 40_000, "value"),
        (Secret(name="a"), "(hidden)", "value"),
    ],
)
def test_a_wrong_secret_is_refused_and_its_value_not_repeated(
    secret: Secret, value: str, field: str
) -> None:
    from raftsched.statemachine.core.rejection import Refused

    with pytest.raises(Refused) as found:
        target_secrets.check(secret, value)
    assert [fault.field for fault in found.value.rejection.faults] == [field]
    assert value not in found.value.rejection.message or value in ("x", "(hidden)")


# Jobs that name them.


def test_a_job_that_names_a_secret_that_is_not_there_is_warned(machine: Machine) -> None:
    warned = create(machine, "api-key").status.warnings
    assert any("secret 'api-key', which is not there" in one for one in warned)
    put(machine)
    job = calling("api-key")
    job.spec.description = "another"
    update = job_pb2.UpdateJobRequest(job=job)
    assert not machine.ask(update, job_pb2.Job).status.warnings


@pytest.mark.parametrize(
    ("text", "why"),
    [("secret://", "without the name"), ("a secret://A-b", "without the name"),
     ("secret://" + "a" * 129, "129 characters")],
)  # fmt: skip
def test_a_wrong_name_of_a_secret_is_refused(machine: Machine, text: str, why: str) -> None:
    job = calling()
    job.spec.action.http.headers["x"] = text
    assert why in machine.refused(job_pb2.CreateJobRequest(job=job)).message


def test_jobs_come_before_their_secrets_by_an_import(machine: Machine) -> None:
    """As from another cluster: what was exported names them, and holds none."""
    batch = job_pb2.ImportJobsRequest(mode=job_pb2.ImportJobsRequest.MODE_UPSERT)
    batch.jobs.append(calling("api-key"))
    [result] = machine.ask(batch, job_pb2.ImportJobsResponse).results
    assert result.verdict == job_pb2.ImportResult.VERDICT_CREATED
    assert any("secret 'api-key'" in one for one in result.warnings)
    kept = machine.job("call").spec.action.http.headers["x-api-key"]
    assert kept == "Bearer secret://api-key"
    put(machine)
    assert machine.refused(delete()).word == "IN_USE"


@pytest.mark.parametrize(
    ("action", "place"),
    [
        ({"http": {"url": "http://h/?k=secret://a"}}, "http.url"),
        ({"grpc": {"target": "secret://a", "method": "a.B/C"}}, "grpc.target"),
        ({"shell": {"argv": ["curl", "-u", "secret://a"]}}, "shell.argv"),
        ({"handler": "work"}, ""),
    ],
)
def test_a_secret_where_none_is_read_is_warned_of(
    machine: Machine, action: Anything, place: str
) -> None:
    job = job_of("call")
    job.spec.action.CopyFrom(job_pb2.Action(**action))
    made = machine.ask(job_pb2.CreateJobRequest(job=job), job_pb2.Job)
    said = [one for one in made.status.warnings if "sent as it is" in one]
    assert [one.split()[0] for one in said] == ([f"spec.action.{place}"] if place else [])


def test_an_action_names_so_many(machine: Machine) -> None:
    names = [f"s{number}" for number in range(17)]
    refused = machine.refused(job_pb2.CreateJobRequest(job=calling(*names)))
    assert (refused.word, "it names 17 secrets" in refused.message) == ("LIMIT_EXCEEDED", True)


def test_a_secret_that_jobs_name_is_deleted_by_force_alone(machine: Machine) -> None:
    put(machine)
    create(machine, "api-key", "other")
    refused = machine.refused(delete())
    assert (refused.word, refused.values["used_by"]) == ("IN_USE", "call")
    machine.do(job_pb2.UpdateJobRequest(job=calling("other")))
    machine.do(delete())
    put(machine, "other")
    assert machine.refused(delete("other")).word == "IN_USE"
    machine.do(delete("other", force=True))
    put(machine, "other")
    assert machine.refused(delete("other")).word == "IN_USE"
    machine.do(job_pb2.DeleteJobRequest(job="call"))
    machine.do(delete("other"))
    assert machine.refused(delete("other")).word == "SECRET_NOT_FOUND"
    machine.advance(1)
    machine.fire()


def test_a_job_of_the_same_change_counts(machine: Machine) -> None:
    """What a decision writes it must find."""
    put(machine)
    made, refused = machine.do_all(job_pb2.CreateJobRequest(job=calling("api-key")), delete())
    assert isinstance(made, job_pb2.Job)
    assert getattr(refused, "word", "") == "IN_USE"


def test_which_jobs_name_it_is_computed_anew(machine: Machine) -> None:
    from raftsched.statemachine.model import keys
    from raftsched.statemachine.model.request import Repair

    put(machine)
    create(machine, "api-key")
    place = keys.secret_user(0, "api-key", machine.jid("call"))
    strange = keys.secret_user(0, "none", machine.jid("call"))
    assert verify.verify(machine.store) == []
    machine.memory_may_differ = True
    machine.store.write([(strange, b"")], [place])
    assert verify.verify(machine.store)
    machine.do(Repair(tuple(verify.verify(machine.store))))
    assert verify.verify(machine.store) == []
    assert machine.store.get(place) == b""
    assert machine.store.get(strange) is None


# Leases.


def test_a_lease_gets_what_its_action_names(machine: Machine) -> None:
    put(machine, "a", b"sealed a")
    put(machine, "b", b"sealed b")
    put(machine, "c", b"sealed c")
    create(machine, "b", "a")
    lease = leased(machine)

    found = machine.ask(resolving(lease), list, actor="worker-token")

    assert [(one.place, one.key_id, one.data) for one in found] == [
        (SealedPlace(0, "default", "a", 1), "k1", b"sealed a"),
        (SealedPlace(0, "default", "b", 1), "k1", b"sealed b"),
    ]
    change = f"for the run {lease.run}, on the worker w1"
    assert notes(machine)[:2] == [
        ("worker-token", "ResolveSecrets", "secret/b", change),
        ("worker-token", "ResolveSecrets", "secret/a", change),
    ]


def test_a_resolve_that_is_not_noted_changes_nothing(machine: Machine) -> None:
    put(machine)
    create(machine, "api-key")
    lease = leased(machine)
    before = image(machine.store)
    assert len(machine.ask(resolving(lease, noted=False), list)) == 1
    assert image(machine.store) == before


def test_nobody_but_who_holds_the_lease_gets_anything(machine: Machine) -> None:
    put(machine)
    create(machine, "api-key")
    lease = leased(machine)
    for worker, run, token in (
        ("w2", lease.run, lease.token), ("", lease.run, lease.token),
        ("w1", lease.run, lease.token + 1), ("w1", lease.run, 0),
    ):  # fmt: skip
        request = worker_pb2.ResolveSecretsRequest(worker=worker, run=run, token=token)
        assert machine.refused(ResolveSecrets(request)).word == "LEASE_LOST"
    for run in ("", "nothing", "call.1.2"):
        request = worker_pb2.ResolveSecretsRequest(worker="w1", run=run, token=lease.token)
        assert machine.refused(ResolveSecrets(request)).word == "RUN_NOT_FOUND"


@pytest.mark.parametrize("how", ["succeeded", "failed", "lapsed", "again"])
def test_a_lease_that_has_ended_gets_nothing(machine: Machine, how: str) -> None:
    put(machine)
    create(machine, "api-key")
    lease = leased(machine)
    match how:
        case "succeeded":
            machine.succeed(lease)
        case "failed":
            machine.fail(lease, fatal=True)
        case "lapsed":
            machine.lapse("w1")
        case "again":
            machine.lapse("w1")
            machine.grant("w1", handlers=("http",))
    assert machine.refused(resolving(lease)).word == "LEASE_LOST"


def test_a_run_that_is_under_way_names_what_it_named_when_it_was_made(machine: Machine) -> None:
    put(machine, "old")
    put(machine, "new")
    create(machine, "old")
    lease = leased(machine)
    machine.do(job_pb2.UpdateJobRequest(job=calling("new")))
    found = machine.ask(resolving(lease), list)
    assert [one.place.name for one in found] == ["old"]
    machine.do(delete("old"))
    refused = machine.refused(resolving(lease))
    assert (refused.word, refused.values["secret"]) == ("SECRET_NOT_FOUND", "old")


def test_a_handler_names_none(machine: Machine) -> None:
    machine.create("call")
    machine.trigger("call")
    machine.fire()
    [lease] = machine.grant("w1")
    assert machine.ask(resolving(lease), list) == []


# Another key.


def test_secrets_are_taken_under_another_key_unless_they_changed(machine: Machine) -> None:
    for name in ("a", "b", "c"):
        put(machine, name, b"old")
    turned = [
        (b"old", SealedSecret(SealedPlace(0, "default", name, 1), "k2", b"new"))
        for name in ("a", "b", "c", "gone")
    ]
    put(machine, "b", b"put since then")
    answer = secret_pb2.RekeySecretsResponse(key_id="k2", unopened=4, next_page_token="t")
    request = secret_pb2.RekeySecretsRequest(request_id="r1")
    resealing = ResealSecrets(request, tuple(turned), answer)

    reply = machine.ask(resealing, secret_pb2.RekeySecretsResponse, actor="root")

    assert (reply.rekeyed, reply.unopened, reply.next_page_token) == (2, 5, "t")
    assert machine.ask(resealing, secret_pb2.RekeySecretsResponse) == reply
    listed = ask(machine, secret_pb2.ListSecretsRequest(), secret_pb2.ListSecretsResponse).secrets
    assert [(one.name, one.key_id, one.etag) for one in listed] == [
        ("a", "k2", "v1"), ("b", "k1", "v2"), ("c", "k2", "v1"),
    ]  # fmt: skip
    assert notes(machine)[0] == ("root", "RekeySecrets", "secrets", "2 under the key k2")


# The text.


def test_a_text_is_filled_with_secrets_and_not_read_again() -> None:
    texts = {"a": "Bearer secret://x", "b": "secret://x:secret://y", "c": "plain"}
    values = {"x": "1", "y": "secret://x"}
    assert secret_text.filled(texts, values) == {"a": "Bearer 1", "b": "1:secret://x", "c": "plain"}
    with pytest.raises(KeyError):
        secret_text.filled({"a": "secret://z"}, values)


def test_only_values_of_headers_metadata_and_environment_name_secrets() -> None:
    action = job_pb2.Action()
    action.http.url = "http://h/?k=secret://a"
    action.http.headers["secret://b"] = "secret://c"
    assert secret_text.names_in(action) == ("c",)
    action.grpc.metadata["k"] = "secret://d"
    assert secret_text.names_in(action) == ("d",)
    action.shell.argv.append("secret://e")
    action.shell.environment["K"] = "secret://g secret://f secret://g"
    assert secret_text.names_in(action) == ("f", "g")
