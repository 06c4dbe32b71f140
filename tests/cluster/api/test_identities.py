"""Callers for whom an identity provider vouches, by a JSON Web Token."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from typing import Any

import pytest

from raftsched.cluster.api import lasting
from raftsched.proto.v1 import (
    access_pb2,
    access_pb2_grpc,
    event_pb2,
    event_pb2_grpc,
    identity_pb2,
    identity_pb2_grpc,
    job_pb2,
    options_pb2,
)

from .conftest import Served, Start
from .issuer import ISSUER, Issuer, provider, rule
from .talk import Anything, create, refused
from .test_auth import bearer, jobs, make, rest_of

Role = options_pb2.Role
LIST = job_pb2.ListJobsRequest()
HIDDEN = "is of no identity provider that the cluster knows"


def providers_of(served: Served) -> Anything:
    return identity_pb2_grpc.IdentityServiceStub(served.channel)


class Time:
    """That of the nodes: as it is, and so much later."""

    def __init__(self) -> None:
        self.later_s = 0.0

    def wall_ms(self) -> int:
        return int((time.time() + self.later_s) * 1000)

    def seconds(self) -> float:
        return time.monotonic() + self.later_s


def trust(served: Served, issuer: Issuer, clock: Time) -> None:
    """Have a node fetch keys from this issuer, at this time."""
    identities = served.server._access.identities
    identities.sets.get, identities.sets.clock = issuer.get, clock.seconds
    identities.wall_ms = clock.wall_ms


async def put(served: Served, root: str, wanted: identity_pb2.IdentityProvider) -> None:
    request = identity_pb2.PutIdentityProviderRequest(identity_provider=wanted)
    await providers_of(served).PutIdentityProvider(request, metadata=bearer(root))


async def opened(
    start: Start, wanted: identity_pb2.IdentityProvider | None = None
) -> tuple[Served, Issuer, Time, str]:
    """A node that trusts an issuer; the secret of its admin."""
    served, issuer, clock = await start("a", failures=100_000), Issuer(), Time()
    trust(served, issuer, clock)
    root = await make(served, "root", Role.ROLE_ADMIN)
    await put(served, root, wanted or provider())
    return served, issuer, clock, root


async def why(served: Served, token: str, code: str = "UNAUTHENTICATED") -> str:
    found = await refused(jobs(served).ListJobs(LIST, metadata=bearer(token)))
    assert found.reason == code, found
    return str(found.message)


async def test_a_token_of_a_provider_opens_what_its_rule_says(start: Start) -> None:
    wanted = provider(
        rule(Role.ROLE_EDITOR, "sub", "ann"), rule(Role.ROLE_VIEWER, "groups", "dev*", "default")
    )
    served, issuer, _, root = await opened(start, wanted)
    await jobs(served).CreateJob(create("report"), metadata=bearer(issuer.token()))
    bob = issuer.token(sub="bob", groups=["x", "developers"])
    await jobs(served).ListJobs(LIST, metadata=bearer(bob))
    found = await refused(jobs(served).CreateJob(create("other"), metadata=bearer(bob)))
    assert found.reason == "FORBIDDEN"
    assert found.message.startswith(f"{ISSUER}#bob may not do this: JobService/CreateJob needs")
    text = await why(served, issuer.token(sub="eve"), "FORBIDDEN")
    assert text.startswith(f"{ISSUER}#eve is known, but no rule of the identity provider corp fits")
    audit: Anything = access_pb2_grpc.AccessServiceStub(served.channel)
    request = access_pb2.ListAuditRecordsRequest(filter="method=CreateJob")
    page = await audit.ListAuditRecords(request, metadata=bearer(root))
    assert [record.actor for record in page.records] == [f"{ISSUER}#ann"]
    me = await audit.WhoAmI(access_pb2.WhoAmIRequest(), metadata=bearer(bob))
    assert (me.kind, me.name) == (access_pb2.Caller.KIND_JWT, f"{ISSUER}#bob")
    assert [(one.namespace, one.role) for one in me.grants] == [("default", Role.ROLE_VIEWER)]
    assert me.expire_time.seconds > time.time()
    # Keys were fetched once, and the call is counted as its own.
    assert issuer.asked == [f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"]
    assert served.admitted[-1].caller == f"{ISSUER}#bob"


async def test_a_follower_verifies_too_and_passes_the_token_on(start: Start) -> None:
    leader, issuer, clock, _ = await opened(start)
    follower = await start("b", failures=100_000)
    trust(follower, issuer, clock)
    made = await jobs(follower).CreateJob(create("report"), metadata=bearer(issuer.token()))
    assert made.name == "report"
    assert leader.admitted[-1].actor == f"{ISSUER}#ann"
    assert HIDDEN in await why(follower, issuer.token(iss="https://other.example"))


async def test_whoever_holds_a_real_token_learns_what_is_wrong_with_it(start: Start) -> None:
    served, issuer, clock, _ = await opened(start)
    now = clock.wall_ms() // 1000
    assert "expired at 2" in await why(served, issuer.token(exp=now - 31))
    assert "for the audience other, x, and raftsched is wanted" in await why(
        served, issuer.token(aud=["other", "x"])
    )
    assert "of nobody" in await why(served, issuer.token(aud=None))
    assert "is valid from" in await why(served, issuer.token(nbf=now + 40))
    assert "(iat)" in await why(served, issuer.token(iat=now + 40))
    assert "has no end (exp)" in await why(served, issuer.token(exp=None))
    assert "of whom it is (sub)" in await why(served, issuer.token(sub=None))
    assert "cannot be printed" in await why(served, issuer.token(sub="a\nb"))
    # Clocks may differ by 30 s.
    for fine in ({"exp": now - 20}, {"nbf": now + 20}, {"aud": ["x", "raftsched"]}):
        await jobs(served).ListJobs(LIST, metadata=bearer(issuer.token(**fine)))


def part(data: object) -> str:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def forged(header: dict[str, Any], claims: dict[str, Any], secret: bytes = b"") -> str:
    """Signed by nobody, or with a secret."""
    body = f"{part(header)}.{part(claims)}"
    made = hmac.digest(secret, body.encode(), hashlib.sha256) if secret else b""
    return f"{body}.{part(made)}"


async def test_a_forged_token_is_refused_and_its_maker_learns_nothing(start: Start) -> None:
    served, issuer, clock, _ = await opened(start)
    await jobs(served).ListJobs(LIST, metadata=bearer(issuer.token()))
    now = clock.wall_ms() // 1000
    claims = {"iss": ISSUER, "sub": "ann", "aud": "raftsched", "exp": now + 600}
    public = json.loads(issuer.jwks())["keys"][0]
    pem = issuer.keys["k1"][1].public_key()
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    shown = pem.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header, payload, signature = issuer.token().split(".")
    eve = Issuer()
    eve.add("k1", "RS256")
    bad = {
        "none": forged({"alg": "none", "kid": "k1"}, claims),
        "None": forged({"alg": "None"}, claims),
        "no alg": forged({"kid": "k1"}, claims),
        "HS256 with the public key": forged({"alg": "HS256", "kid": "k1"}, claims, shown),
        "HS256 with its JWK": forged({"alg": "HS256"}, claims, json.dumps(public).encode()),
        "an alg that does not fit": forged({"alg": "ES256", "kid": "k1"}, claims),
        "an alg that is not allowed": forged({"alg": "PS256", "kid": "k1"}, claims),
        "a key in the header": eve.token(headers={"jwk": public, "jku": "https://eve.example/k"}),
        "a key of somebody else": eve.token(),
        "a path as kid": forged({"alg": "RS256", "kid": "../../../dev/null"}, claims, b"x"),
        "a list as kid": forged({"alg": "RS256", "kid": ["k1"]}, claims, b"x"),
        "crit": issuer.token(headers={"crit": ["b64"], "b64": False}),
        "claims of another": f"{header}.{part({**claims, 'sub': 'root'})}.{signature}",
        "no signature": f"{header}.{payload}.",
        "no JSON": f"{part(b'[[[')}.{part(b'}}')}.{part(b'x')}",
        "deep JSON": f"{part({'alg': 'RS256'})}.{part(b'[' * 4_000)}.{part(b'x')}",
        "a list as claims": f"{part({'alg': 'RS256'})}.{part([1])}.{part(b'x')}",
        "an issuer that is a list": forged({"alg": "RS256"}, {**claims, "iss": [ISSUER]}, b"x"),
        "no base64": "a.b.c", "dots": "..",
    }  # fmt: skip
    for name, token in bad.items():
        assert HIDDEN in await why(served, token), name
    # However its header looks, no more was fetched than after the first 30 s are allowed.
    assert len(issuer.asked) == 2


async def test_an_unknown_key_is_asked_for_each_30_s_and_a_gone_one_opens_nothing(
    start: Start,
) -> None:
    served, issuer, clock, _ = await opened(start)
    old = issuer.token()
    await jobs(served).ListJobs(LIST, metadata=bearer(old))
    issuer.add("k2", "ES256")
    new = issuer.token("k2")
    assert HIDDEN in await why(served, new)
    for _ in range(20):
        await why(served, issuer.token(headers={"kid": "made-up"}))
    assert len(issuer.asked) == 2
    clock.later_s = 31
    await jobs(served).ListJobs(LIST, metadata=bearer(new))
    assert len(issuer.asked) == 4
    await jobs(served).ListJobs(LIST, metadata=bearer(old))
    del issuer.keys["k1"]
    clock.later_s = 62
    await why(served, issuer.token("k2", headers={"kid": "made-up"}))
    assert HIDDEN in await why(served, old)
    await jobs(served).ListJobs(LIST, metadata=bearer(issuer.token("k2")))


async def test_a_new_key_may_have_the_id_of_the_old_one_or_none(start: Start) -> None:
    served, issuer, clock, _ = await opened(start)
    old = issuer.token()
    await jobs(served).ListJobs(LIST, metadata=bearer(old))
    issuer.add("k1", "RS256")
    assert HIDDEN in await why(served, issuer.token())
    clock.later_s = 31
    await jobs(served).ListJobs(LIST, metadata=bearer(issuer.token()))
    assert HIDDEN in await why(served, old)
    del issuer.keys["k1"]
    issuer.add("", "RS256")
    clock.later_s = 62
    await jobs(served).ListJobs(LIST, metadata=bearer(issuer.token("", headers={"kid": None})))


async def test_an_issuer_may_be_down_for_hours_and_not_for_days(start: Start) -> None:
    served, issuer, clock, _ = await opened(start)
    await jobs(served).ListJobs(LIST, metadata=bearer(issuer.token()))
    issuer.is_down = True
    for hour in (1, 12, 23):
        clock.later_s = hour * 3_600
        served.server._access.identities.keep()
        await asyncio.sleep(0)
        token = issuer.token(now=clock.wall_ms() // 1000)
        await jobs(served).ListJobs(LIST, metadata=bearer(token))
    clock.later_s = 86_400
    token = issuer.token(now=clock.wall_ms() // 1000)
    assert "cannot be had" in await why(served, token, "IDENTITY_UNAVAILABLE")
    issuer.is_down = False
    clock.later_s += 31
    await jobs(served).ListJobs(LIST, metadata=bearer(token))


async def test_many_tokens_wait_for_one_fetch(start: Start) -> None:
    served, issuer, clock, _ = await opened(start)
    gate, get = asyncio.Event(), issuer.get

    async def slow(url: str) -> bytes:
        await gate.wait()
        return await get(url)

    sets = served.server._access.identities.sets
    sets.get = slow
    for found in sets.by_issuer.values():
        found.replace(())
    clock.later_s = 31
    asked = [jobs(served).ListJobs(LIST, metadata=bearer(issuer.token(sub=f"u{n}")))
             for n in range(50)]  # fmt: skip
    answers = asyncio.gather(*asked)
    async with asyncio.timeout(60):
        while served.server._access.identities._waiting < 50:
            await asyncio.sleep(0.01)
    before = len(issuer.asked)
    gate.set()
    await answers
    assert len(issuer.asked) == before + 2


async def test_keys_that_are_weak_or_for_other_ends_open_nothing(start: Start) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    served, issuer, _, root = await opened(start)
    issuer.add("short", "RS256", rsa.generate_private_key(65537, 1024))
    good = json.loads(issuer.jwks())["keys"]
    issuer.more = [
        {**good[0], "kid": "enc", "use": "enc"}, {"kty": "oct", "k": "c2VjcmV0", "kid": "oct"},
        {"kty": "RSA", "kid": "odd"}, {"kty": "EC", "crv": ["P-256"]}, "text", None,
        {"kty": ["RSA"]}, {**good[0], "alg": 7, "kid": "alg"},
    ]  # fmt: skip
    await jobs(served).ListJobs(LIST, metadata=bearer(issuer.token()))
    for kid in ("enc", "oct", "odd", "alg"):
        assert HIDDEN in await why(served, issuer.token(headers={"kid": kid}))
    with pytest.warns(match="key"):
        short = issuer.token("short")
    assert HIDDEN in await why(served, short)
    wanted = provider(static_keys=issuer.jwks())
    request = identity_pb2.PutIdentityProviderRequest(identity_provider=wanted)
    found = await refused(providers_of(served).PutIdentityProvider(request, metadata=bearer(root)))
    assert found.reason == "FIELD_INVALID"


async def test_written_keys_need_no_issuer(start: Start) -> None:
    issuer = Issuer()
    issuer.add("k2", "EdDSA")
    served, other, _, root = await opened(start, provider(static_keys=issuer.jwks()))
    for kid in ("k1", "k2"):
        await jobs(served).ListJobs(LIST, metadata=bearer(issuer.token(kid)))
    assert other.asked == []
    del issuer.keys["k1"]
    await put(served, root, provider(static_keys=issuer.jwks(), algorithms=["RS256"]))
    assert HIDDEN in await why(served, issuer.token("k2"))


async def test_a_change_of_the_rules_counts_at_once_and_ends_what_lasts(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting, "LOOK_AGAIN_S", 0.0)
    served, issuer, _, root = await opened(start)
    token = issuer.token()
    events: Anything = event_pb2_grpc.EventServiceStub(served.channel)
    watch = events.WatchEvents(event_pb2.WatchEventsRequest(), metadata=bearer(token))
    await watch.read()
    await jobs(served).ListJobs(LIST, metadata=bearer(token))
    await put(served, root, provider(rule(Role.ROLE_VIEWER)))
    found = await refused(jobs(served).CreateJob(create("x"), metadata=bearer(token)))
    assert found.reason == "FORBIDDEN"

    assert (await refused(rest_of(watch))).reason == "UNAUTHENTICATED"
    gone = identity_pb2.DeleteIdentityProviderRequest(identity_provider="corp")
    await providers_of(served).DeleteIdentityProvider(gone, metadata=bearer(root))
    assert HIDDEN in await why(served, token)


async def test_an_instant_beyond_all_calendars_is_as_far_away_as_may_be(start: Start) -> None:
    """Providers give `exp` in milliseconds by mistake; who calls could not be shown then."""
    served, issuer, _, _ = await opened(start)
    for far in (10**12, 10**18, 10**400):
        access = access_pb2_grpc.AccessServiceStub(served.channel)
        caller = bearer(issuer.token(exp=far))
        me = await access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=caller)
        assert me.expire_time.ToJsonString() == "9999-12-31T23:59:59Z"
    for shown in (issuer.token(nbf=10**400), issuer.token(iat=10**400)):
        assert "valid from 9999" in await why(served, shown)


async def test_a_token_that_expires_ends_what_lasts(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting, "LOOK_AGAIN_S", 0.0)
    served, issuer, clock, _ = await opened(start)
    events: Anything = event_pb2_grpc.EventServiceStub(served.channel)
    token = bearer(issuer.token())
    watch = events.WatchEvents(event_pb2.WatchEventsRequest(), metadata=token)
    await watch.read()
    clock.later_s = 700

    assert (await refused(rest_of(watch))).reason == "UNAUTHENTICATED"
    assert "expired at" in await why(served, token[0][1].removeprefix("Bearer "))


async def test_no_provider_before_all_members_know_what_that_is(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    served.node.levels["b"] = 3
    request = identity_pb2.PutIdentityProviderRequest(identity_provider=provider())
    found = await refused(providers_of(served).PutIdentityProvider(request, metadata=bearer(root)))
    assert found.reason == "MEMBER_LACKS"
