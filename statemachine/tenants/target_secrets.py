"""Secrets for the targets of jobs: what is known of them, and what they are, encrypted.

The node encrypts before it asks and decrypts what the rule for a lease answers
(`runs/leased_secrets.py`), so no rule has a key and no change of the log a plain text. What a node
encrypts it binds to the place that `SealedPlace` names: the number and the name of the namespace,
the name of the secret and the version of the value. A rule takes it only if that still is the next
version there.

Which jobs name which secrets stands in a table of its own, from the action of the job as it is now.
A job that names one that is not there gets a warning: it may come later, with an import say.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from google.protobuf.message import Message

from ...proto.v1 import secret_pb2
from ..core import instants, limits
from ..core.rejection import Fault, Reason, Refused
from ..model import hiding, keys, validate
from ..model.record import JobRecord, NamespaceRecord, SecretRecord
from ..model.request import ResealSecrets, SealedPlace, SecretChanged, StoreSecret
from ..model.view import View
from . import audit_log, idempotency, namespaces

Secret = secret_pb2.Secret
NAMED = 3  # Jobs that a refusal names.
WRITTEN = ("namespace", "name", "labels")


def find(view: View, namespace: str, name: str) -> tuple[int, SecretRecord]:
    """The number of a namespace, and a secret of it."""
    number = namespaces.need(view, namespace).number
    record = view.get(keys.target_secret(number, name), SecretRecord)
    if record is None:
        raise missing(namespace or namespaces.DEFAULT, name)
    return number, record


def missing(namespace: str, name: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_SECRET_NOT_FOUND,
        f"there is no secret '{name[: limits.NAME_CHARS]}' in the namespace '{namespace}'; put it "
        f"there (raftsched secret put {name[: limits.NAME_CHARS]} -n {namespace})",
        namespace=namespace, secret=name,
    )  # fmt: skip


def next_place(view: View, secret: Secret) -> SealedPlace:
    """Where the next value of a secret will stand."""
    namespace = namespaces.need(view, secret.namespace)
    record = view.get(keys.target_secret(namespace.number, secret.name), SecretRecord)
    version = record.value_version if record is not None else 0
    return place_of(namespace, secret.name, version + 1)


def place_of(namespace: NamespaceRecord, name: str, version: int) -> SealedPlace:
    return SealedPlace(namespace.number, namespace.settings.name, name, version)


def check(secret: Secret, value: str) -> None:
    """Refuse what is wrong with a secret, by what the caller wrote; no word repeats the value."""
    faults = validate.name("secret.name", secret.name)
    faults += validate.labels("secret.labels", secret.labels, limits.LABELS)
    size = len(value.encode())
    if size > limits.SECRET_BYTES:
        message = f"it has {size} bytes; the most is {limits.SECRET_BYTES}"
        faults.append(Fault("value", Reason.ERROR_REASON_LIMIT_EXCEEDED, message))
    if "\0" in value:
        message = "it has a zero character, which no target can be given; take it out"
        faults.append(Fault("value", Reason.ERROR_REASON_FIELD_INVALID, message))
    if value == hiding.HIDDEN:
        faults.append(hiding.sent_back("value"))
    if faults:
        raise Refused.of(faults)


def store(view: View, order: StoreSecret, actor: str) -> Message | SecretChanged:
    """Create or replace a secret. SecretChanged: it was changed since it was encrypted."""
    wanted, request_id = order.request.secret, order.request.request_id
    if request_id and (before := _before(view, order)) is not None:
        return before
    namespace = namespaces.need(view, wanted.namespace)
    key = keys.target_secret(namespace.number, wanted.name)
    record = view.get(key, SecretRecord)
    namespaces.check_etag(wanted.etag, record.version if record is not None else 0)
    if order.sealed is not None and order.sealed.place != next_place(view, wanted):
        return SecretChanged()
    if record is None:
        record = _new(view, namespace, order)
    record.settings.CopyFrom(_settings(wanted, namespace.settings.name))
    record.version += 1
    if order.sealed is not None:
        record.value_version += 1
        record.key_id, record.sealed = order.sealed.key_id, order.sealed.data
        record.updated_at_ms, record.updater = view.now_ms, actor
        view.weigh(len(record.sealed))
    view.put(key, record)
    what = f"value {record.value_version}" if order.sealed is not None else "labels"
    subject = f"secret/{wanted.name}"
    audit_log.add(view, actor, "PutSecret", namespace.settings.name, subject, order.request, what)
    reply = answer(record)
    if request_id:
        idempotency.add(view, request_id, order.request, reply, order.digests[0])
    return reply


def _before(view: View, order: StoreSecret) -> Message | None:
    """The first answer to this request: its fingerprint was made with one of the node's keys."""
    refusal = None
    for digest in order.digests:
        try:
            return idempotency.find(view, order.request.request_id, order.request, digest)
        except Refused as refused:
            refusal = refused
    assert refusal is not None, "a node makes at least one fingerprint"
    raise refusal


def _new(view: View, namespace: NamespaceRecord, order: StoreSecret) -> SecretRecord:
    if order.sealed is None:
        message = "it is empty; a new secret needs a value"
        raise Refused.of([Fault("value", Reason.ERROR_REASON_FIELD_REQUIRED, message)])
    prefix = keys.in_namespace(keys.TARGET_SECRET, namespace.number)
    if sum(1 for _ in view.scan(prefix, keys.after(prefix))) >= limits.SECRETS:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"there are {limits.SECRETS} secrets in the namespace, which is the most; delete one "
            "first",
            limit="secrets", maximum=limits.SECRETS, actual=limits.SECRETS + 1,
        )  # fmt: skip
    return SecretRecord(created_at_ms=view.now_ms)


def delete(
    view: View, request: secret_pb2.DeleteSecretRequest, actor: str
) -> secret_pb2.DeleteSecretResponse:
    number, record = find(view, request.namespace, request.secret)
    namespaces.check_etag(request.etag, record.version)
    users = _users(view, number, request.secret)
    if users and not request.force:
        more = " and more" if len(users) > NAMED else ""
        named = ", ".join(users[:NAMED])
        raise Refused.because(
            Reason.ERROR_REASON_IN_USE,
            f"jobs name the secret '{request.secret}': {named}{more}; take it out of them first, "
            "or delete it with force, and their attempts fail",
            kind="secret", name=request.secret, used_by=",".join(users[:NAMED]),
        )  # fmt: skip
    view.delete(keys.target_secret(number, request.secret))
    name = record.settings.namespace
    subject = f"secret/{request.secret}"
    audit_log.add(view, actor, "DeleteSecret", name, subject, request)
    return secret_pb2.DeleteSecretResponse()


def _users(view: View, number: int, name: str) -> list[str]:
    """Some jobs that name a secret, one more than a refusal names."""
    prefix = keys.secret_users(number, name)
    found = islice(view.scan(prefix, keys.after(prefix)), NAMED + 1)
    jobs = (view.get(keys.job(int.from_bytes(key[-8:], "big")), JobRecord) for key in found)
    return sorted(job.name for job in jobs if job is not None)


def use(view: View, jid: int, names: Iterable[str]) -> None:
    """Note that a job names these secrets."""
    number = keys.namespace_of(jid)
    for name in names:
        view.put_raw(keys.secret_user(number, name, jid), b"")


def unuse(view: View, jid: int, names: Iterable[str]) -> None:
    """A job names these secrets no more."""
    number = keys.namespace_of(jid)
    for name in names:
        key = keys.secret_user(number, name, jid)
        # A leader of a version before wrote none.
        if view.get_raw(key) is not None:
            view.delete_raw(key)


def warnings(view: View, jid: int, names: Iterable[str]) -> list[str]:
    """Of secrets that a job names and that are not there."""
    number = keys.namespace_of(jid)
    return [
        f"it names the secret '{name}', which is not there, so its attempts will fail; put it "
        f"there: raftsched secret put {name}"
        for name in names
        if view.get(keys.target_secret(number, name), SecretRecord) is None
    ]


def reseal(view: View, order: ResealSecrets, actor: str) -> Message:
    """Take secrets under another key, as far as they are what was decrypted."""
    request = order.request
    if request.request_id:
        before = idempotency.find(view, request.request_id, request)
        if before is not None:
            return before
    reply = secret_pb2.RekeySecretsResponse()
    reply.CopyFrom(order.answer)
    for former, sealed in order.secrets:
        place = sealed.place
        key = keys.target_secret(place.number, place.name)
        record = view.get(key, SecretRecord)
        if record is None or record.sealed != former:
            # It was put anew, under a key that is no older, or is gone.
            reply.unopened += record is not None
            continue
        record.key_id, record.sealed = sealed.key_id, sealed.data
        view.weigh(len(sealed.data))
        view.put(key, record)
        reply.rekeyed += 1
    if reply.rekeyed:
        change = f"{reply.rekeyed} under the key {reply.key_id}"
        audit_log.add(view, actor, "RekeySecrets", "", "secrets", request, change)
    if request.request_id:
        idempotency.add(view, request.request_id, request, reply)
    return reply


def _settings(wanted: Secret, namespace: str) -> Secret:
    kept = Secret()
    kept.CopyFrom(wanted)
    kept.namespace = namespace
    for field in kept.DESCRIPTOR.fields:
        if field.name not in WRITTEN:
            kept.ClearField(field.name)  # type: ignore[arg-type]
    return kept


def answer(record: SecretRecord) -> Secret:
    """What may be known of a secret."""
    shown = Secret()
    shown.CopyFrom(record.settings)
    shown.value_version, shown.key_id = record.value_version, record.key_id
    shown.updater, shown.etag = record.updater, f"v{record.version}"
    instants.set_ms(shown.create_time, record.created_at_ms)
    instants.set_ms(shown.update_time, record.updated_at_ms)
    return shown
