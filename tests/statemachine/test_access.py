"""Access tokens: who may call, by the hash of a secret."""

from __future__ import annotations

from hashlib import sha256

import pytest

from raftsched.proto.v1 import access_pb2, namespace_pb2, options_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.machine import Request, decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.request import CreateToken, NoteUses, RotateToken, TokenCreated
from raftsched.statemachine.tenants import access

from .asking import ask, pages
from .driver import Machine, image

AccessToken = access_pb2.AccessToken
VIEWER = options_pb2.ROLE_VIEWER


def digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def token(name: str = "t", **fields: object) -> AccessToken:
    settings = {"role": VIEWER, **fields}
    return AccessToken(name=name, **settings)  # type: ignore[arg-type]


def order(
    wanted: AccessToken, secret: str = "s", request_id: str = "", *, validate_only: bool = False
) -> CreateToken:
    request = access_pb2.CreateAccessTokenRequest(
        access_token=wanted, request_id=request_id, validate_only=validate_only
    )
    return CreateToken(request, digest(secret))


def create(machine: Machine, wanted: AccessToken, secret: str = "s", **more: str) -> TokenCreated:
    return machine.ask(order(wanted, secret, **more), TokenCreated, actor="root")  # type: ignore[arg-type]


def found(machine: Machine, secret: str = "s") -> AccessToken | None:
    return access.find(machine.store, digest(secret), machine.now_ms)


def names(machine: Machine) -> list[str]:
    request = access_pb2.ListAccessTokensRequest(page_size=2)
    answers = pages(machine, request, access_pb2.ListAccessTokensResponse)
    return [token.name for page in answers for token in page.access_tokens]


@pytest.mark.parametrize("name", ["raftsched", "system", "bootstrap", "recover-admin"])
def test_no_token_has_a_name_of_the_cluster_itself(machine: Machine, name: str) -> None:
    """Seen before: a tenant's token stood in the audit log as the cluster itself."""
    refused = machine.refused(order(token(name)))

    assert [fault.field for fault in refused.faults] == ["access_token.name"]
    assert "take another name" in refused.message


def test_a_secret_is_known_by_its_hash(machine: Machine) -> None:
    created = create(machine, token(see_payloads=True), "s")

    assert created.new
    assert not created.answer.secret
    assert created.answer.access_token.create_time.ToMilliseconds() == machine.now_ms
    known = found(machine)
    assert known is not None
    assert (known.name, known.role, known.see_payloads) == ("t", VIEWER, True)
    assert found(machine, "other") is None
    stored = b"".join(image(machine.store).values())
    assert digest("s") in stored


def test_a_token_is_valid_until_it_expires(machine: Machine) -> None:
    create(machine, token(expire_time=timestamp(machine.now_ms + 1_000)))

    machine.advance(999)
    assert found(machine) is not None
    machine.advance(1)
    assert found(machine) is None
    assert names(machine) == ["t"]


def test_a_revoked_token_is_valid_no_more(machine: Machine) -> None:
    create(machine, token("a"), "1")
    create(machine, token("b"), "2")

    machine.do(access_pb2.RevokeAccessTokenRequest(access_token="a"))

    assert found(machine, "1") is None
    assert found(machine, "2") is not None
    assert names(machine) == ["b"]
    create(machine, token("a"), "3")
    assert found(machine, "1") is None


def test_the_last_token_that_can_make_others_stays(machine: Machine) -> None:
    """Two that revoke each other's token in one change must not open the cluster either."""
    create(machine, token("one", role=options_pb2.ROLE_ADMIN), "1")
    create(machine, token("two", role=options_pb2.ROLE_ADMIN), "2")
    create(machine, token("ends", role=options_pb2.ROLE_ADMIN, expire_time=timestamp(6 << 40)), "3")
    create(machine, token("look"), "4")

    machine.do(access_pb2.RevokeAccessTokenRequest(access_token="one"))
    refused = machine.refused(access_pb2.RevokeAccessTokenRequest(access_token="two"))

    assert "'two' is the last token of an admin" in refused.message
    for name in ("ends", "look"):
        machine.do(access_pb2.RevokeAccessTokenRequest(access_token=name))
    assert machine.refused(access_pb2.RevokeAccessTokenRequest(access_token="two"))
    assert names(machine) == ["two"]


def test_a_repeated_call_gets_the_token_again_and_not_its_secret(machine: Machine) -> None:
    first = create(machine, token(), "one", request_id="r")
    before = image(machine.store)

    again = create(machine, token(), "two", request_id="r")

    assert (again.new, again.answer) == (False, first.answer)
    assert image(machine.store) == before
    assert found(machine, "one") is not None
    assert found(machine, "two") is None
    other = order(token("u"), "three", "r")
    assert machine.refused(other).word == "REQUEST_ID_REUSED"


def test_a_dry_run_creates_nothing(machine: Machine) -> None:
    before = image(machine.store)

    reply = machine.ask(order(token(), validate_only=True), TokenCreated)

    assert reply.answer.access_token.name == "t"
    assert image(machine.store) == before


def test_tokens_are_listed_by_name_in_pages(machine: Machine) -> None:
    for name in ("c", "a", "d", "b", "e"):
        create(machine, token(name), name)

    assert names(machine) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("wanted", "field", "reason"),
    [
        (token(""), "access_token.name", "FIELD_REQUIRED"),
        (token("No"), "access_token.name", "FIELD_INVALID"),
        (token(role=0), "access_token.role", "FIELD_REQUIRED"),
        (token(role=9), "access_token.role", "FIELD_INVALID"),
        (token(expire_time=timestamp(1)), "access_token.expire_time", "FIELD_INVALID"),
    ],
)
def test_a_wrong_token_is_refused(
    machine: Machine, wanted: AccessToken, field: str, reason: str
) -> None:
    refusal = machine.refused(order(wanted))

    assert [fault.field for fault in refusal.faults] == [field]
    assert refusal.word == reason


def test_what_stands_in_the_way_of_a_token(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(machine, token())

    assert machine.refused(order(token(), "2")).word == "NAME_EXISTS"
    assert machine.refused(order(token("u", namespace="no"), "2")).word == "NAMESPACE_NOT_FOUND"
    missing = access_pb2.RevokeAccessTokenRequest(access_token="u")
    assert machine.refused(missing).values == {"access_token": "u"}
    monkeypatch.setattr(limits, "ACCESS_TOKENS", 1)
    assert machine.refused(order(token("u"), "2")).values["limit"] == "access_tokens"
    monkeypatch.setattr(limits, "ACCESS_TOKENS", 2)
    create(machine, token("u"), "2")


def test_the_tokens_of_a_namespace_go_with_it(machine: Machine) -> None:
    for name in ("n", "m"):
        settings = namespace_pb2.Namespace(name=name)
        machine.do(namespace_pb2.CreateNamespaceRequest(namespace=settings))
    create(machine, token("a", namespace="n"), "1")
    create(machine, token("b", namespace="m"), "2")
    create(machine, token("c"), "3")

    machine.do(namespace_pb2.DeleteNamespaceRequest(namespace="n"))

    assert found(machine, "1") is None
    assert names(machine) == ["b", "c"]


def test_who_made_a_token_is_noted_and_its_secret_is_not(machine: Machine) -> None:
    create(machine, token())
    machine.do(access_pb2.RevokeAccessTokenRequest(access_token="t"), actor="root")

    listed = ask(
        machine, access_pb2.ListAuditRecordsRequest(), access_pb2.ListAuditRecordsResponse
    ).records

    assert [(note.actor, note.method, note.subject) for note in listed] == [
        ("root", "RevokeAccessToken", "accessToken/t"),
        ("root", "CreateAccessToken", "accessToken/t"),
    ]


def test_a_token_of_the_same_change_is_seen(machine: Machine) -> None:
    first, second = decide(
        machine.view(), [Request(order(token(), "1")), Request(order(token(), "2"))]
    ).replies

    assert isinstance(first, TokenCreated)
    assert getattr(second, "word") == "NAME_EXISTS"  # noqa: B009  # It is an object.


def rotate(
    machine: Machine, secret: str, overlap_ms: int | None = None, request_id: str = ""
) -> TokenCreated:
    request = access_pb2.RotateAccessTokenRequest(access_token="t", request_id=request_id)
    if overlap_ms is not None:
        request.overlap.FromMilliseconds(overlap_ms)
    return machine.ask(RotateToken(request, digest(secret)), TokenCreated, actor="root")


def opens(machine: Machine) -> set[str]:
    return {secret for secret in "abcdef" if found(machine, secret) is not None}


def test_a_rotated_token_has_two_secrets_for_a_while(machine: Machine) -> None:
    create(machine, token(), "a")
    made = rotate(machine, "b", 5_000)
    assert made.new
    until_ms = made.answer.access_token.former_secret_expire_time.ToMilliseconds()
    assert until_ms == machine.now_ms + 5_000
    assert opens(machine) == {"a", "b"}
    machine.advance(4_999)
    assert opens(machine) == {"a", "b"}
    machine.advance(1)
    assert opens(machine) == {"b"}
    rotate(machine, "c")
    assert opens(machine) == {"b", "c"}
    machine.advance(3_600_000)
    assert opens(machine) == {"c"}
    rotate(machine, "d", 0)
    assert opens(machine) == {"d"}
    kept = [key for key in image(machine.store) if key[:1] == keys.SECRET]
    assert len(kept) == 2
    request = access_pb2.RevokeAccessTokenRequest(access_token="t")
    machine.ask(request, access_pb2.RevokeAccessTokenResponse, actor="root")
    assert opens(machine) == set()
    assert not [key for key in image(machine.store) if key[:1] in keys.SECRET + keys.FORMER_SECRET]


def test_who_lost_the_answer_rotates_again_and_keeps_the_secret_he_has(machine: Machine) -> None:
    create(machine, token(), "a")
    rotate(machine, "b", 60_000)
    machine.advance(1_000)
    made = rotate(machine, "c", 60_000)
    assert opens(machine) == {"a", "c"}
    assert made.answer.access_token.former_secret_expire_time.ToMilliseconds() == (
        machine.now_ms + 59_000
    )
    again = rotate(machine, "d", request_id="once")
    assert (again.new, rotate(machine, "e", request_id="once").new) == (True, False)
    assert opens(machine) == {"a", "d"}


def last_use(machine: Machine, name: str) -> str:
    request = access_pb2.ListAccessTokensRequest()
    answer = ask(machine, request, access_pb2.ListAccessTokensResponse)
    [shown] = [one for one in answer.access_tokens if one.name == name]
    return shown.last_use_time.ToJsonString() if shown.HasField("last_use_time") else ""


def test_a_token_says_in_which_hour_it_was_last_used(machine: Machine) -> None:
    create(machine, token(), "s")
    create(machine, token("other"), "o")
    assert last_use(machine, "t") == ""
    machine.at("2026-01-01T10:59:59")
    machine.do(NoteUses(("t", "unknown")))
    assert last_use(machine, "t") == "2026-01-01T10:00:00Z"
    assert last_use(machine, "other") == ""

    before = image(machine.store)
    machine.at("2026-01-01T10:59:59.500")
    assert not machine.decide(NoteUses(("t",))).change
    assert image(machine.store) == before
    machine.at("2026-01-02T11:00")
    machine.do(NoteUses(("t",)))
    assert last_use(machine, "t") == "2026-01-02T11:00:00Z"
    machine.check()


def test_a_use_is_forgotten_with_its_token(machine: Machine) -> None:
    create(machine, token(), "s")
    machine.do(NoteUses(("t",)))
    machine.do(access_pb2.RevokeAccessTokenRequest(access_token="t"))
    assert not list(machine.store.scan(keys.TOKEN_USE, keys.after(keys.TOKEN_USE)))

    # An older version has revoked one and left it.
    machine.store.write([(keys.token_use("t"), bytes(7) + b"x")], ())
    create(machine, token(), "s")
    assert last_use(machine, "t") == ""


def test_one_change_notes_so_many(machine: Machine) -> None:
    create(machine, token(), "s")
    names = (*(f"t{number}" for number in range(limits.USES_NOTED)), "t")
    machine.do(NoteUses(names))
    assert last_use(machine, "t") == ""


def test_a_rotation_that_asks_too_much_is_refused(machine: Machine) -> None:
    request = access_pb2.RotateAccessTokenRequest(access_token="t")
    assert machine.refused(RotateToken(request, digest("b"))).word == "ACCESS_TOKEN_NOT_FOUND"
    create(machine, token(), "a")
    request.overlap.FromSeconds(31 * 86_400)
    assert machine.refused(RotateToken(request, digest("b"))).word == "FIELD_INVALID"
    wanted = order(token("u", calls_per_second=100_001))
    assert machine.refused(wanted).values["field"] == "access_token.calls_per_second"
