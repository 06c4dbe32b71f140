"""Access tokens: secrets that show who calls. Only their hashes are here.

A secret is made by whoever asks for the token (`CreateToken`), since the rules throw no dice.
`find` answers the authentication of each call with two reads. The tokens of a namespace are revoked
with it, since another one may get its name.
"""

from __future__ import annotations

from ...proto.v1 import access_pb2, options_pb2
from ..core import instants, limits
from ..core.instants import ms_or
from ..core.rejection import Fault, Reason, Refused
from ..core.store import Reading
from ..model import keys, validate
from ..model.record import AccessTokenRecord, parse
from ..model.request import CreateToken, NoteUses, RotateToken, TokenCreated
from ..model.view import View
from . import audit_log, idempotency, namespaces

AccessToken = access_pb2.AccessToken
Created = access_pb2.CreateAccessTokenResponse
Rotated = access_pb2.RotateAccessTokenResponse
HOUR_MS = 3_600_000
DIGEST_BYTES = 32
# As whom the cluster itself, and who opens it without a token, stand in the audit log.
RESERVED = frozenset(("raftsched", "system", "bootstrap", "recover-admin"))


def find(store: Reading, digest: bytes, now_ms: int) -> AccessToken | None:
    """The token with a secret of this hash, if there is one and it is valid."""
    name = store.get(keys.secret(digest))
    if name is None:
        return None
    key = keys.ACCESS + name
    value = store.get(key)
    assert value is not None, f"the access token {name.decode()} is not there"
    record = parse(key, value, AccessTokenRecord)
    token = record.settings
    if record.digest != digest and former(store, token.name)[1] <= now_ms:
        return None
    return None if 0 < ms_or(token, "expire_time", 0) <= now_ms else token


def former(store: Reading, name: str) -> tuple[bytes, int]:
    """The hash of the secret a token had before, and until when that opens; b"" and 0 if none."""
    value = store.get(keys.former_secret(name)) or bytes(8)
    return value[8:], int.from_bytes(value[:8], "big")


def last_use_ms(store: Reading, name: str) -> int:
    """The hour in which a token was last used, as far as that was noted; 0 if never."""
    return int.from_bytes(store.get(keys.token_use(name)) or b"", "big")


def note_uses(view: View, request: NoteUses, actor: str) -> None:
    """To the hour, so that a token that is always in use is written once an hour."""
    hour_ms = hour_of(view.now_ms)
    for name in request.names[: limits.USES_NOTED]:
        if view.get(keys.access(name), AccessTokenRecord) is None:
            # It was revoked meanwhile.
            continue
        key = keys.token_use(name)
        if int.from_bytes(view.get_raw(key) or b"", "big") < hour_ms:
            view.put_raw(key, hour_ms.to_bytes(8, "big"))


def hour_of(at_ms: int) -> int:
    return at_ms - at_ms % HOUR_MS


def any_token(store: Reading) -> bool:
    return next(iter(store.scan(keys.ACCESS, keys.after(keys.ACCESS))), None) is not None


def first_token(store: Reading) -> tuple[str, int]:
    """The name of the oldest token that there is, and since when."""
    entries = store.scan(keys.ACCESS, keys.after(keys.ACCESS))
    found = (parse(*entry, AccessTokenRecord) for entry in entries)
    oldest = min(found, key=lambda token: token.created_at_ms)
    return oldest.settings.name, oldest.created_at_ms


def create(view: View, request: CreateToken, actor: str) -> TokenCreated:
    assert len(request.digest) == DIGEST_BYTES, "the hash of a secret is a SHA-256"
    asked = request.request
    if asked.request_id:
        before = idempotency.find(view, asked.request_id, asked)
        if isinstance(before, Created):
            return TokenCreated(before, new=False)
    wanted = asked.access_token
    if request.first:
        _check_first(view, wanted)
    _check(view, wanted)
    record = AccessTokenRecord(
        settings=_settings(wanted), created_at_ms=view.now_ms, digest=request.digest
    )
    view.put(keys.access(wanted.name), record)
    view.put_raw(keys.secret(request.digest), wanted.name.encode())
    if view.get_raw(keys.token_use(wanted.name)) is not None:
        # Of another one of that name, which an older version has revoked.
        view.delete(keys.token_use(wanted.name))
    audit_log.add(
        view, actor, "CreateAccessToken", wanted.namespace, f"accessToken/{wanted.name}", asked
    )
    reply = Created(access_token=answer(record))
    if asked.request_id:
        idempotency.add(view, asked.request_id, asked, reply)
    return TokenCreated(reply, new=True)


def _check_first(view: View, wanted: AccessToken) -> None:
    """Of all that come at once without a token, one makes the first; then the others need one."""
    if next(iter(view.scan(keys.ACCESS, keys.after(keys.ACCESS))), None) is not None:
        raise Refused.because(
            Reason.ERROR_REASON_UNAUTHENTICATED,
            "somebody has made the first access token meanwhile, so one is needed to make others; "
            "ask whoever has it",
        )
    if not opens_all(wanted):
        message = (
            "the first access token closes the cluster to whoever has none, so it must be one "
            "that can make others: role ADMIN, without a namespace and without an end"
        )
        raise Refused.of([Fault("access_token.role", Reason.ERROR_REASON_FIELD_INVALID, message)])


def _check(view: View, wanted: AccessToken) -> None:
    faults = validate.name("access_token.name", wanted.name)
    if wanted.name in RESERVED:
        message = (
            f"'{wanted.name}' is what the audit log calls the cluster itself, or whoever opened it "
            "from a node's folder; take another name"
        )
        faults.append(Fault("access_token.name", Reason.ERROR_REASON_FIELD_INVALID, message))
    if wanted.role == options_pb2.ROLE_UNSPECIFIED:
        message = "say what it may do: ADMIN, EDITOR, WORKER or VIEWER"
        faults.append(Fault("access_token.role", Reason.ERROR_REASON_FIELD_REQUIRED, message))
    faults += validate.enum("access_token.role", wanted, "role")
    most = limits.CALLS_PER_SECOND
    place = "access_token.calls_per_second"
    faults += validate.between(place, wanted.calls_per_second, 0, most)
    faults += validate.instant("access_token.expire_time", wanted, "expire_time")
    if wanted.HasField("expire_time") and instants.to_ms(wanted.expire_time) <= view.now_ms:
        message = "it has passed already; give an instant to come, or none"
        field = "access_token.expire_time"
        faults.append(Fault(field, Reason.ERROR_REASON_FIELD_INVALID, message))
    if faults:
        raise Refused.of(faults)
    if wanted.namespace:
        namespaces.need(view, wanted.namespace)
    if view.get(keys.access(wanted.name), AccessTokenRecord) is not None:
        raise Refused.because(
            Reason.ERROR_REASON_NAME_EXISTS,
            f"there is an access token '{wanted.name}' already; revoke it, or take another name",
            kind="access_token", name=wanted.name,
        )  # fmt: skip
    if sum(1 for _ in view.scan(keys.ACCESS, keys.after(keys.ACCESS))) >= limits.ACCESS_TOKENS:
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"there are {limits.ACCESS_TOKENS} access tokens, which is the most; revoke one first",
            limit="access_tokens", maximum=limits.ACCESS_TOKENS, actual=limits.ACCESS_TOKENS + 1,
        )  # fmt: skip


def rotate(view: View, request: RotateToken, actor: str) -> TokenCreated:
    """Another secret; the former one opens as well for a while. One that is still within such a
    time stays the former one, so who has lost an answer can rotate again."""
    asked = request.request
    if asked.request_id:
        before = idempotency.find(view, asked.request_id, asked)
        if isinstance(before, Rotated):
            return TokenCreated(before, new=False)
    faults = validate.span("overlap", asked, "overlap", 0, limits.OVERLAP_MS)
    if faults:
        raise Refused.of(faults)
    name = asked.access_token
    record = _need(view, name)
    digest, until_ms = _former(view, name)
    if until_ms > view.now_ms:
        view.delete(keys.secret(record.digest))
    else:
        if digest:
            view.delete(keys.secret(digest))
        until_ms = view.now_ms + ms_or(asked, "overlap", HOUR_MS)
        view.put_raw(keys.former_secret(name), until_ms.to_bytes(8, "big") + record.digest)
    record.digest = request.digest
    view.put(keys.access(name), record)
    view.put_raw(keys.secret(request.digest), name.encode())
    place = record.settings.namespace
    audit_log.add(view, actor, "RotateAccessToken", place, f"accessToken/{name}", asked)
    reply = Rotated(access_token=answer(record, until_ms))
    if asked.request_id:
        idempotency.add(view, asked.request_id, asked, reply)
    return TokenCreated(reply, new=True)


def _former(view: View, name: str) -> tuple[bytes, int]:
    value = view.get_raw(keys.former_secret(name)) or bytes(8)
    return value[8:], int.from_bytes(value[:8], "big")


def revoke(
    view: View, request: access_pb2.RevokeAccessTokenRequest, actor: str
) -> access_pb2.RevokeAccessTokenResponse:
    name = request.access_token
    record = _need(view, name)
    if opens_all(record.settings) and not _another(view, name):
        message = (
            f"'{name}' is the last token of an admin for all namespaces without an end. Without it "
            "nobody could make others, and without any the cluster would be open to everybody; "
            "create another one of that kind first"
        )
        raise Refused.of([Fault("access_token", Reason.ERROR_REASON_FIELD_INVALID, message)])
    _drop(view, record)
    namespace = record.settings.namespace
    audit_log.add(view, actor, "RevokeAccessToken", namespace, f"accessToken/{name}", request)
    return access_pb2.RevokeAccessTokenResponse()


def _need(view: View, name: str) -> AccessTokenRecord:
    record = view.get(keys.access(name), AccessTokenRecord)
    if record is None:
        raise Refused.because(
            Reason.ERROR_REASON_ACCESS_TOKEN_NOT_FOUND,
            f"there is no access token '{name}'; list what there is",
            access_token=name,
        )
    return record


def opens_all(token: AccessToken) -> bool:
    """Whether somebody with this token can make others, for ever."""
    everywhere = not token.namespace and not token.HasField("expire_time")
    return token.role == options_pb2.ROLE_ADMIN and everywhere


def _another(view: View, name: str) -> bool:
    """Whether somebody can still make tokens once this one is gone."""
    tokens = (
        view.need(key, AccessTokenRecord).settings
        for key in view.scan(keys.ACCESS, keys.after(keys.ACCESS))
    )
    return any(opens_all(token) for token in tokens if token.name != name)


def revoke_all(view: View, namespace: str) -> None:
    """No token of a namespace that is gone may open another one of the same name."""
    for key in list(view.scan(keys.ACCESS, keys.after(keys.ACCESS))):
        record = view.need(key, AccessTokenRecord)
        if record.settings.namespace == namespace:
            _drop(view, record)


def _drop(view: View, record: AccessTokenRecord) -> None:
    view.delete(keys.access(record.settings.name))
    view.delete(keys.secret(record.digest))
    view.delete(keys.token_use(record.settings.name))
    digest, _ = _former(view, record.settings.name)
    if digest:
        view.delete(keys.former_secret(record.settings.name))
        view.delete(keys.secret(digest))


def _settings(wanted: AccessToken) -> AccessToken:
    kept = AccessToken()
    kept.CopyFrom(wanted)
    for name in ("create_time", "former_secret_expire_time", "last_use_time"):
        kept.ClearField(name)
    return kept


def answer(
    record: AccessTokenRecord, former_until_ms: int = 0, last_use_ms: int = 0
) -> AccessToken:
    shown = AccessToken()
    shown.CopyFrom(record.settings)
    instants.set_ms(shown.create_time, record.created_at_ms)
    if former_until_ms:
        instants.set_ms(shown.former_secret_expire_time, former_until_ms)
    if last_use_ms:
        instants.set_ms(shown.last_use_time, last_use_ms)
    return shown
