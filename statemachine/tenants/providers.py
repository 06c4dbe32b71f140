"""Identity providers: who vouches for callers beside the access tokens, and what those may do.

Here is what the log knows: whom the cluster trusts, and the binding rules. Nodes verify what a
caller shows by themselves, since keys are fetched and clocks differ; `bound` says what follows
from the claims of one who was verified.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from ...proto.v1 import identity_pb2, options_pb2
from ..core import instants, limits
from ..core.rejection import Fault, Reason, Refused
from ..core.store import Reading
from ..model import keys, validate
from ..model.record import IdentityProviderRecord
from ..model.view import View
from . import access, audit_log, namespaces

Provider = identity_pb2.IdentityProvider
Rule = identity_pb2.BindingRule
INVALID = Reason.ERROR_REASON_FIELD_INVALID
REQUIRED = Reason.ERROR_REASON_FIELD_REQUIRED
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
KINDS_OF_KEYS = ("RSA", "EC", "OKP")
ANY = "*"  # At the end of a value: whatever follows.
PLACE = "identity_provider"


def entries(store: Reading) -> Iterator[tuple[bytes, bytes]]:
    """The identity providers that there are, as they are stored."""
    return store.scan(keys.PROVIDER, keys.after(keys.PROVIDER))


def bound(rules: Iterable[Rule], claims: Mapping[str, Any]) -> Rule | None:
    """The first rule that fits these claims; None if none does."""
    return next((rule for rule in rules if all(fits(one, claims) for one in rule.claims)), None)


def fits(selector: identity_pb2.ClaimSelector, claims: Mapping[str, Any]) -> bool:
    held: Any = claims
    for name in selector.claim:
        if not isinstance(held, Mapping) or name not in held:
            return False
        held = held[name]
    texts = [one for one in (held if isinstance(held, list) else [held]) if isinstance(one, str)]
    for wanted in selector.values:
        if any(
            one.startswith(wanted[:-1]) if wanted.endswith(ANY) else one == wanted for one in texts
        ):
            return True
    return False


def put(view: View, request: identity_pb2.PutIdentityProviderRequest, actor: str) -> Provider:
    wanted = request.identity_provider
    faults = _faults(wanted)
    if faults:
        raise Refused.of(faults)
    if not access.any_token(view.stored):
        message = (
            "no access token was made yet, so nobody is asked who calls and no provider counts; "
            "make the first one (raftsched token create NAME --role admin -A)"
        )
        raise Refused.of([Fault(PLACE, INVALID, message)])
    for rule in wanted.rules:
        if rule.namespace:
            namespaces.need(view, rule.namespace)
    key = keys.provider(wanted.name)
    record = view.get(key, IdentityProviderRecord)
    namespaces.check_etag(wanted.etag, record.version if record is not None else 0)
    _check_others(view, wanted, is_new=record is None)
    if record is None:
        record = IdentityProviderRecord(created_at_ms=view.now_ms)
    old, record.settings = record.settings, _settings(wanted)
    detail = audit_log.difference(old, record.settings)
    record.version += 1
    view.put(key, record)
    subject = f"identityProvider/{wanted.name}"
    audit_log.add(view, actor, "PutIdentityProvider", "", subject, request, detail)
    return answer(record)


def _check_others(view: View, wanted: Provider, *, is_new: bool) -> None:
    """One issuer has one provider, and so have the certificates."""
    known = [
        view.need(key, IdentityProviderRecord).settings
        for key in view.scan(keys.PROVIDER, keys.after(keys.PROVIDER))
    ]
    for other in known:
        if other.name == wanted.name or other.WhichOneof("kind") != wanted.WhichOneof("kind"):
            continue
        if wanted.HasField("certificates") or other.jwt.issuer == wanted.jwt.issuer:
            whose = wanted.jwt.issuer or "certificates"
            message = f"the identity provider '{other.name}' is for {whose} already; change that"
            raise Refused.of([Fault(f"{PLACE}.{wanted.WhichOneof('kind')}", INVALID, message)])
    if is_new and len(known) >= limits.IDENTITY_PROVIDERS:
        most = limits.IDENTITY_PROVIDERS
        raise Refused.because(
            Reason.ERROR_REASON_LIMIT_EXCEEDED,
            f"there are {most} identity providers, which is the most; delete one first",
            limit="identity_providers", maximum=most, actual=most + 1,
        )  # fmt: skip


def delete(
    view: View, request: identity_pb2.DeleteIdentityProviderRequest, actor: str
) -> identity_pb2.DeleteIdentityProviderResponse:
    name = request.identity_provider
    record = find(view, name)
    namespaces.check_etag(request.etag, record.version)
    view.delete(keys.provider(name))
    subject = f"identityProvider/{name}"
    audit_log.add(view, actor, "DeleteIdentityProvider", "", subject, request)
    return identity_pb2.DeleteIdentityProviderResponse()


def find(view: View, name: str) -> IdentityProviderRecord:
    record = view.get(keys.provider(name), IdentityProviderRecord)
    if record is None:
        raise Refused.because(
            Reason.ERROR_REASON_IDENTITY_PROVIDER_NOT_FOUND,
            f"there is no identity provider '{name}'; list what there is",
            identity_provider=name,
        )
    return record


def unbind(view: View, namespace: str) -> None:
    """No rule for a namespace that is gone may open another one of the same name."""
    for key in list(view.scan(keys.PROVIDER, keys.after(keys.PROVIDER))):
        record = view.need(key, IdentityProviderRecord)
        left = [rule for rule in record.settings.rules if rule.namespace != namespace]
        if len(left) < len(record.settings.rules):
            settings = _settings(record.settings)
            del settings.rules[:]
            settings.rules.extend(left)
            record.settings = settings
            record.version += 1
            view.put(key, record)


def _faults(wanted: Provider) -> list[Fault]:
    faults = validate.name(f"{PLACE}.name", wanted.name)
    if wanted.WhichOneof("kind") is None:
        message = "say what it issues: jwt, with its issuer and audiences, or certificates"
        faults.append(Fault(f"{PLACE}.jwt", REQUIRED, message))
    if wanted.HasField("jwt"):
        faults += _issuer_faults(f"{PLACE}.jwt", wanted.jwt)
    place = f"{PLACE}.rules"
    faults += validate.count(place, len(wanted.rules), limits.BINDING_RULES)
    if not wanted.rules:
        message = "there are none, so nobody could call; give at least one"
        faults.append(Fault(place, REQUIRED, message))
    for number, rule in enumerate(wanted.rules[: limits.BINDING_RULES]):
        faults += _rule_faults(f"{place}[{number}]", rule)
    return faults


def _issuer_faults(place: str, wanted: identity_pb2.TokenIssuer) -> list[Fault]:
    faults = _address_faults(f"{place}.issuer", wanted.issuer)
    if "?" in wanted.issuer or "#" in wanted.issuer:
        message = f"'{wanted.issuer[:80]}' has a query or fragment, and no issuer has; take it out"
        faults.append(Fault(f"{place}.issuer", INVALID, message))
    if not wanted.audiences:
        message = "say whom its tokens are for, or those for other services would open this one"
        faults.append(Fault(f"{place}.audiences", REQUIRED, message))
    faults += _texts_faults(f"{place}.audiences", wanted.audiences, limits.AUDIENCES)
    for number, algorithm in enumerate(wanted.algorithms):
        if algorithm not in ALGORITHMS:
            message = f"'{algorithm[:80]}' is never taken; use one of {', '.join(ALGORITHMS)}"
            faults.append(Fault(f"{place}.algorithms[{number}]", INVALID, message))
    faults += validate.count(f"{place}.algorithms", len(wanted.algorithms), len(ALGORITHMS))
    if wanted.jwks_uri:
        faults += _address_faults(f"{place}.jwks_uri", wanted.jwks_uri)
    if wanted.static_keys:
        faults += _key_set_faults(f"{place}.static_keys", wanted)
    return faults + validate.span(f"{place}.leeway", wanted, "leeway", 0, limits.LEEWAY_MS)


def _address_faults(place: str, url: str) -> list[Fault]:
    if not url:
        return [Fault(place, REQUIRED, "it is empty; write https://host/path")]
    if not is_address(url):
        message = f"'{url[:80]}' is no address; write https://host/path, or http:// on loopback"
        return [Fault(place, INVALID, message)]
    return validate.text(place, url, limits.URL_CHARS)


def is_address(url: str) -> bool:
    """Whether keys may be fetched from there: nobody on the way may have changed them."""
    if not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        place = urlsplit(url)
        if place.username is not None or place.port == 0 or not place.hostname:
            return False
    except ValueError:
        return False
    return place.scheme == "https" or (place.scheme == "http" and is_loopback(place.hostname))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _key_set_faults(place: str, wanted: identity_pb2.TokenIssuer) -> list[Fault]:
    text, why = wanted.static_keys, ""
    if len(text.encode()) > limits.KEY_SET_BYTES:
        message = f"it has {len(text.encode())} bytes; the most is {limits.KEY_SET_BYTES}"
        return [Fault(place, Reason.ERROR_REASON_LIMIT_EXCEEDED, message)]
    if wanted.jwks_uri:
        why = "there is a jwks_uri as well; give one of the two"
    else:
        why = key_set_fault(text)
    return [Fault(place, INVALID, why)] if why else []


def key_set_fault(text: str) -> str:
    """Why this is no JWK set of public keys; empty if it is one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return 'it is no JSON; give a JWK set, {"keys": [...]}'
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or not listed or not all(isinstance(k, dict) for k in listed):
        return 'it is no JWK set; write {"keys": [{"kty": ...}, ...]}'
    if len(listed) > limits.KEYS_OF_ISSUER:
        return f"it has {len(listed)} keys; the most is {limits.KEYS_OF_ISSUER}"
    for key in listed:
        if key.get("kty") not in KINDS_OF_KEYS:
            return f"a key has kty {str(key.get('kty'))[:20]!r}; use {', '.join(KINDS_OF_KEYS)}"
        if "d" in key:
            return "a key has its private part in it (d); make new keys, and give the public part"
    return ""


def _rule_faults(place: str, rule: Rule) -> list[Fault]:
    faults = validate.enum(f"{place}.role", rule, "role") + validate.between(
        f"{place}.calls_per_second", rule.calls_per_second, 0, limits.CALLS_PER_SECOND
    )
    if rule.role == options_pb2.ROLE_UNSPECIFIED:
        message = "say what they may do: ADMIN, EDITOR, WORKER or VIEWER"
        faults.append(Fault(f"{place}.role", REQUIRED, message))
    if not rule.claims:
        message = (
            "it names no claim, so it would fit everybody whom the provider knows; write claim "
            '["sub"] with the value * if that is meant'
        )
        faults.append(Fault(f"{place}.claims", REQUIRED, message))
    faults += validate.count(f"{place}.claims", len(rule.claims), limits.CLAIM_SELECTORS)
    for number, selector in enumerate(rule.claims[: limits.CLAIM_SELECTORS]):
        for name, texts, most in (
            ("claim", selector.claim, limits.CLAIM_PATH),
            ("values", selector.values, limits.CLAIM_VALUES),
        ):
            inner = f"{place}.claims[{number}].{name}"
            if not texts:
                faults.append(Fault(inner, REQUIRED, "it is empty; give at least one text"))
            faults += _texts_faults(inner, texts, most)
    return faults


def _texts_faults(place: str, texts: Iterable[str], most: int) -> list[Fault]:
    texts = list(texts)
    faults = validate.count(place, len(texts), most)
    for number, text in enumerate(texts[:most]):
        if not text:
            faults.append(Fault(f"{place}[{number}]", REQUIRED, "it is empty; leave it out"))
        faults += validate.text(f"{place}[{number}]", text, limits.CLAIM_CHARS)
    return faults


def _settings(wanted: Provider) -> Provider:
    kept = Provider()
    kept.CopyFrom(wanted)
    for name in ("create_time", "etag"):
        kept.ClearField(name)
    return kept


def answer(record: IdentityProviderRecord) -> Provider:
    shown = Provider()
    shown.CopyFrom(record.settings)
    shown.etag = f"v{record.version}"
    instants.set_ms(shown.create_time, record.created_at_ms)
    return shown
