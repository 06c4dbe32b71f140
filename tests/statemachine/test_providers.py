"""Identity providers: whom the cluster trusts to say who calls, and what those may do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raftsched.proto.v1 import access_pb2, identity_pb2, namespace_pb2, options_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.model.request import CreateToken, TokenCreated
from raftsched.statemachine.tenants import providers

from .asking import ask, pages
from .driver import Machine

Anything = Any  # Fields of messages by their names.
Provider = identity_pb2.IdentityProvider
Rule = identity_pb2.BindingRule
Selector = identity_pb2.ClaimSelector
VIEWER, ADMIN = options_pb2.ROLE_VIEWER, options_pb2.ROLE_ADMIN
PUBLIC = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}


@pytest.fixture
def closed(machine: Machine) -> Machine:
    """A cluster with an access token."""
    token = access_pb2.AccessToken(name="root", role=ADMIN)
    request = access_pb2.CreateAccessTokenRequest(access_token=token)
    machine.ask(CreateToken(request, b"r" * 32, first=True), TokenCreated, actor="")
    return machine


def rule(claim: str = "sub", value: str = "*", **more: Anything) -> Rule:
    selector = Selector(claim=[claim], values=[value])
    return Rule(claims=[selector], role=more.pop("role", VIEWER), **more)


def provider(name: str = "corp", **more: Anything) -> Provider:
    issuer = {"issuer": "https://id.example", "audiences": ["raftsched"], **more.pop("jwt", {})}
    rules = more.pop("rules", [rule()])
    return Provider(name=name, jwt=identity_pb2.TokenIssuer(**issuer), rules=rules, **more)


def put(machine: Machine, wanted: Provider) -> Provider:
    request = identity_pb2.PutIdentityProviderRequest(identity_provider=wanted)
    return machine.ask(request, Provider, actor="root")


def fault(machine: Machine, wanted: Provider) -> tuple[str, str]:
    """The first wrong field, and why."""
    request = identity_pb2.PutIdentityProviderRequest(identity_provider=wanted)
    refused = machine.refused(request)
    return refused.values["field"].removeprefix("identity_provider."), refused.message


def names(machine: Machine) -> list[str]:
    request = identity_pb2.ListIdentityProvidersRequest(page_size=1)
    answers = pages(machine, request, identity_pb2.ListIdentityProvidersResponse)
    return [one.name for page in answers for one in page.identity_providers]


def test_a_provider_is_put_read_changed_and_deleted(closed: Machine) -> None:
    made = put(closed, provider())
    assert (made.etag, made.create_time.ToMilliseconds()) == ("v1", closed.now_ms)
    put(closed, provider("other", jwt={"issuer": "https://other.example"}))
    assert names(closed) == ["corp", "other"]
    changed = put(closed, provider(rules=[rule(role=ADMIN)]))
    assert changed.etag == "v2"
    got = ask(closed, identity_pb2.GetIdentityProviderRequest(identity_provider="corp"), Provider)
    assert got == changed
    gone = identity_pb2.DeleteIdentityProviderRequest(identity_provider="corp", etag="v1")
    assert closed.refused(gone).word == "ETAG_MISMATCH"
    gone.etag = "v2"
    closed.ask(gone, identity_pb2.DeleteIdentityProviderResponse)
    assert names(closed) == ["other"]
    assert closed.refused(gone).word == "IDENTITY_PROVIDER_NOT_FOUND"


def test_each_change_stands_in_the_audit_log(closed: Machine) -> None:
    put(closed, provider())
    put(closed, provider(jwt={"audiences": ["else"]}))
    request = access_pb2.ListAuditRecordsRequest(filter="subject=identityProvider/corp")
    [page] = pages(closed, request, access_pb2.ListAuditRecordsResponse)
    assert [one.actor for one in page.records] == ["root", "root"]
    assert page.records[0].change == "jwt.audiences: ['raftsched'] to ['else']"


def test_a_cluster_without_tokens_takes_no_provider(machine: Machine) -> None:
    where, why = fault(machine, provider())
    assert where == "identity_provider"
    assert "no access token was made yet" in why


@pytest.mark.parametrize(
    ("wanted", "field", "why"),
    [
        (Provider(name="x", rules=[rule()]), "jwt", "say what it issues"),
        (provider(rules=[]), "rules", "nobody could call"),
        (provider(rules=[Rule(role=VIEWER)]), "rules[0].claims", "fit everybody"),
        (provider(rules=[rule(role=0)]), "rules[0].role", "say what they may do"),
        (provider(rules=[rule("")]), "rules[0].claims[0].claim[0]", "it is empty"),
        (provider(rules=[rule()] * 51), "rules", "the most is 50"),
        (provider(jwt={"audiences": []}), "jwt.audiences", "say whom its tokens are for"),
        (provider(jwt={"issuer": "http://id.example"}), "jwt.issuer", "is no address"),
        (provider(jwt={"issuer": "https://id.example?x"}), "jwt.issuer", "no issuer has"),
        (provider(jwt={"issuer": "https://u:p@id.example"}), "jwt.issuer", "is no address"),
        (provider(jwt={"jwks_uri": "file:///etc/passwd"}), "jwt.jwks_uri", "is no address"),
        (provider(jwt={"algorithms": ["none"]}), "jwt.algorithms[0]", "never taken"),
        (provider(jwt={"algorithms": ["RS256", "HS256"]}), "jwt.algorithms[1]", "never taken"),
        (provider(jwt={"static_keys": "{"}), "jwt.static_keys", "no JSON"),
        (provider(jwt={"static_keys": "[" * 20_000}), "jwt.static_keys", "no JSON"),
        (provider(jwt={"static_keys": '{"keys": []}'}), "jwt.static_keys", "no JWK set"),
        (provider(jwt={"static_keys": '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'}),
         "jwt.static_keys", "kty 'oct'"),
        (provider(jwt={"static_keys": json.dumps({"keys": [{**PUBLIC, "d": "x"}]})}),
         "jwt.static_keys", "private part"),
    ],
)  # fmt: skip
def test_what_would_open_too_much_is_refused(
    closed: Machine, wanted: Provider, field: str, why: str
) -> None:
    where, said = fault(closed, wanted)
    assert (where, why in said) == (field, True), said


def test_one_issuer_has_one_provider_and_there_are_so_many(closed: Machine) -> None:
    put(closed, provider())
    assert "'corp' is for https://id.example already" in fault(closed, provider("again"))[1]
    wanted = Provider(
        name="certs", certificates=identity_pb2.ClientCertificates(), rules=[rule("cn")]
    )
    put(closed, wanted)
    wanted.name = "certs2"
    assert fault(closed, wanted)[0] == "certificates"
    for number in range(limits.IDENTITY_PROVIDERS - 2):
        put(closed, provider(f"p{number}", jwt={"issuer": f"https://{number}.example"}))
    request = identity_pb2.PutIdentityProviderRequest(
        identity_provider=provider("more", jwt={"issuer": "https://more.example"})
    )
    assert closed.refused(request).word == "LIMIT_EXCEEDED"


def test_a_rule_goes_with_its_namespace(closed: Machine) -> None:
    request = identity_pb2.PutIdentityProviderRequest(
        identity_provider=provider(rules=[rule(namespace="team")])
    )
    assert closed.refused(request).word == "NAMESPACE_NOT_FOUND"
    team = namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name="team"))
    closed.ask(team, namespace_pb2.Namespace)
    put(closed, provider(rules=[rule("sub", "a", namespace="team"), rule("sub", "b")]))
    closed.ask(namespace_pb2.DeleteNamespaceRequest(namespace="team"),
               namespace_pb2.DeleteNamespaceResponse)  # fmt: skip
    got = ask(closed, identity_pb2.GetIdentityProviderRequest(identity_provider="corp"), Provider)
    assert [one.claims[0].values[0] for one in got.rules] == ["b"]


def test_the_first_rule_that_fits_says_what_somebody_may_do() -> None:
    def found(rules: list[Rule], **claims: Anything) -> int | None:
        fit = providers.bound(rules, claims)
        return rules.index(fit) if fit is not None else None

    rules = [
        Rule(claims=[Selector(claim=["realm", "roles"], values=["ops", "root"])], role=ADMIN),
        Rule(claims=[Selector(claim=["sub"], values=["repo:org/*"]),
                     Selector(claim=["ref"], values=["main"])], role=VIEWER),
    ]  # fmt: skip
    assert found(rules, realm={"roles": ["dev", "root"]}) == 0
    assert found(rules, realm={"roles": "ops"}, sub="repo:org/x", ref="main") == 0
    assert found(rules, sub="repo:org/x", ref="main") == 1
    assert found(rules, sub="repo:org/x", ref="other") is None
    assert found(rules, sub="repo:organ/x", ref="main") is None
    odds: list[Anything] = [{}, "ops*", ["opsx"], [["ops"]], 7, None, True]
    for odd in odds:
        assert found(rules, realm={"roles": odd}) is None, odd
    assert found(rules, realm=["roles", "ops"]) is None
