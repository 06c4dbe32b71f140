"""What headers say, in the words of the contracts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from google.protobuf.message import Message

from ..sdk.errors import FieldFault
from ..sdk.links import Answer
from .config import Settings
from .headers import Headers
from .problems import JSON, PROBLEM, GatewayRefusal, field_faults
from .routes import Binding

LINES = "application/x-ndjson"
EVENTS = "text/event-stream"
# So much of a value is shown; longer ones of these are not looked at.
SHOWN_MAX = 200
LIST_MAX, HOST_MAX = 1_000, 260
# A name or address, and perhaps a port.
HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s/?#@\[\]:\\]+))(?::[0-9]*)?")
# A node takes so much metadata, the names of it and some others included.
TOKEN_MAX = 7_000
SINGLE = ("Authorization", "Idempotency-Key", "Origin", "Sec-Fetch-Site")
# What tools send of a body whose type nobody has named; and what browsers alone send.
UNNAMED = ("", "application/x-www-form-urlencoded")
BROWSERS = ("origin", "sec-fetch-site", "sec-fetch-mode")
ETAG_WRONG = "it is no entity tag; send the ETag of the answer as it was, in double quotes"
EXPOSED = (
    "etag, location, retry-after, raftsched-revision, raftsched-leader, raftsched-age-ms, "
    "raftsched-cluster, raftsched-term"
)
TAKEN = "authorization, content-type, accept, idempotency-key, if-match, last-event-id, traceparent"


def _accept(headers: Headers) -> str:
    """The types that are taken; whoever names so many takes any."""
    accept = headers.get("accept", "")
    return accept if len(accept) <= LIST_MAX else "*/*"


@lru_cache(1_000)
def accepted(accept: str, offered: tuple[str, ...]) -> str:
    """The first of the offered types with the highest quality; "" if none is taken."""
    ranges = dict[str, float]()
    for part in accept.split(","):
        media, *parameters = (word.strip().lower() for word in part.split(";"))
        quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        try:
            ranges[media] = float(quality)
        except ValueError:
            ranges[media] = 0.0
    best = max(offered, key=lambda one: _quality(one, ranges))
    return best if _quality(best, ranges) > 0 else ""


def _quality(media: str, ranges: Mapping[str, float]) -> float:
    kind = media.split("/")[0]
    return next((ranges[one] for one in (media, f"{kind}/*", "*/*", "") if one in ranges), 0.0)


def check_accept(headers: Headers, offered: tuple[str, ...]) -> str:
    """The type of the answer."""
    accept = _accept(headers)
    found = accepted(accept, offered)
    if not found:
        words = " or ".join(offered)
        raise GatewayRefusal(
            "NOT_ACCEPTABLE", f"the answer is {words}, and you take {accept!r}; send Accept: */*",
            {"accept": accept, "offered": words},
        )  # fmt: skip
    return found


def problem_type(headers: Headers) -> str:
    """The form of refusals that the caller takes; a stream's caller gets JSON."""
    return accepted(_accept(headers), (JSON, PROBLEM)) or JSON


def check_content(headers: Headers) -> None:
    """Refuse a body that is no JSON, before it is read.

    `curl -d` calls all that it sends a form, and other tools name no type: that is taken as JSON
    where no browser sends it. A page may send forms anywhere without asking first.
    """
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    coding = headers.get("content-encoding", "identity").strip().lower()
    is_json = media == JSON or (media.startswith("application/") and media.endswith("+json"))
    by_browser = any(name in headers for name in BROWSERS)
    if not is_json and (by_browser or media not in UNNAMED):
        raise GatewayRefusal(
            "MEDIA_UNSUPPORTED",
            f"the body is {media[:SHOWN_MAX] or 'of no type'}; send JSON with Content-Type: {JSON}",
            {"content_type": media[:SHOWN_MAX]},
        )
    if coding not in ("", "identity"):
        raise GatewayRefusal(
            "MEDIA_UNSUPPORTED",
            f"the body is encoded as {coding[:SHOWN_MAX]}; send it as it is",
            {"content_type": media[:SHOWN_MAX]},
        )  # fmt: skip


def check_single(headers: Headers, version: str) -> None:
    """Refuse what others on the way may understand in another way."""
    twice = next((name for name in SINGLE if name.lower() in headers.twice), "")
    why = f"it has the header {twice} twice; send one of them" if twice else ""
    if "content-length" in headers and "transfer-encoding" in headers:
        why = "it has Content-Length and Transfer-Encoding; send one of them"
    elif version == "1.0" and "transfer-encoding" in headers:
        why = "HTTP/1.0 knows no Transfer-Encoding; send Content-Length, or HTTP/1.1"
    if why:
        raise GatewayRefusal(
            "REQUEST_MALFORMED", f"the request means two things: {why}", {"detail": why},
            headers={"connection": "close"},
        )  # fmt: skip


def token_of(headers: Headers) -> str:
    """The access token that is shown; "" for none."""
    shown = headers.get("authorization", "")
    if not shown:
        return ""
    scheme, _, token = shown.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not (token.isascii() and token.isprintable()):
        raise GatewayRefusal(
            "UNAUTHENTICATED", "the header Authorization is not understood; send: Bearer SECRET"
        )
    if len(token) > TOKEN_MAX:
        raise GatewayRefusal(
            "UNAUTHENTICATED", f"the access token has {len(token):,} characters, and none has over "
            f"{TOKEN_MAX:,}; send one alone",
        )  # fmt: skip
    return token


def check_host(headers: Headers, settings: Settings) -> None:
    """A page of anywhere may give its own name the address of this machine, and then read from
    here what it likes: such a name is not ours."""
    value = headers.get("host", "")
    name = _host(value) if len(value) <= HOST_MAX else ""
    if settings.hosts is None or name in settings.hosts or name == "localhost" or _is_ip(name):
        return
    raise GatewayRefusal(
        "FORBIDDEN", f"this gateway is not known as {name!r}; call it by its address, or start it "
        f"with --host {name or 'NAME'}", {"host": name}, status=421,
    )  # fmt: skip


@lru_cache(1_000)
def _host(value: str) -> str:
    """The name or address; "" for what is none, which others may understand in another way."""
    found = HOST.fullmatch(value)
    return (found[1] or found[2]).lower().rstrip(".") if found else ""


@lru_cache(1_000)
def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_origin(headers: Headers, settings: Settings) -> dict[str, str]:
    """What to say to a browser of a page from elsewhere; refuses one that may not call."""
    origin = headers.get("origin", "")
    if not origin or is_own(origin, headers):
        return {}
    if origin in settings.cors_origins:
        return {"access-control-allow-origin": origin, "vary": "origin, accept-encoding",
                "access-control-expose-headers": EXPOSED}  # fmt: skip
    raise GatewayRefusal(
        "FORBIDDEN", f"pages of {origin[:SHOWN_MAX]} may not call this gateway; start it with "
        f"--cors-origin {origin[:SHOWN_MAX]} if they shall", {"origin": origin[:SHOWN_MAX]},
    )  # fmt: skip


def is_own(origin: str, headers: Headers) -> bool:
    """Whether this is where the request itself went."""
    return _netloc(origin) == headers.get("host", "")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def preflight(allow: str) -> dict[str, str]:
    return {
        "access-control-allow-methods": allow, "access-control-allow-headers": TAKEN,
        "access-control-max-age": "600",
    }  # fmt: skip


def request_id(headers: Headers) -> str:
    """`Idempotency-Key`, quoted or bare."""
    return _unquoted(headers.get("idempotency-key", "").strip())


def _unquoted(given: str) -> str:
    return given[1:-1] if given[:1] == given[-1:] == '"' and len(given) > 1 else given


def put_request_id(request: Any, headers: Headers) -> None:
    """`Idempotency-Key` is the request id of a write."""
    given = request_id(headers)
    if not given or "request_id" not in request.DESCRIPTOR.fields_by_name:
        return
    if request.request_id and request.request_id != given:
        raise _wrong("request_id", f"it is not the Idempotency-Key {given!r}; send one of them")
    request.request_id = given


def put_etag(request: Any, binding: Binding, headers: Headers) -> None:
    """`If-Match` is the etag that the call compares."""
    given = headers.get("if-match", "").strip()
    if not given or given == "*":
        return
    bare = _unquoted(given)
    if '"' in bare or not bare:
        raise _wrong("etag", ETAG_WRONG)
    held = request
    if "etag" not in request.DESCRIPTOR.fields_by_name:
        inner = request.DESCRIPTOR.fields_by_name.get(binding.body)
        if inner is None or "etag" not in inner.message_type.fields_by_name:
            raise _wrong("etag", "this call compares no ETag; call it without If-Match")
        held = getattr(request, binding.body)
    if held.etag and held.etag != bare:
        raise _wrong("etag", f"it is not what If-Match says, {bare!r}; send one of them")
    held.etag = bare


def _wrong(field: str, message: str) -> GatewayRefusal:
    return field_faults([FieldFault(field, "FIELD_INVALID", message)])


def metadata(answer: Answer[Any]) -> dict[str, str]:
    """What the cluster says of an answer, as headers."""
    found = {
        "raftsched-leader": answer.leader, "raftsched-revision": answer.revision,
        "raftsched-cluster": answer.cluster,
    }  # fmt: skip
    if answer.term:
        found["raftsched-term"] = str(answer.term)
    if answer.age_ms is not None:
        found["raftsched-age-ms"] = str(answer.age_ms)
    return {name: text for name, text in found.items() if text}


def etag(message: Any) -> dict[str, str]:
    own = "etag" in message.DESCRIPTOR.fields_by_name and message.etag
    return {"etag": f'"{own}"'} if own else {}


def creates(binding: Binding, request: Any) -> bool:
    """Whether a call makes something that then has a path of its own."""
    return (
        binding.verb == "POST"
        and binding.call.verb.startswith("Create")
        and not getattr(request, "validate_only", False)
    )


def location(collection: str, message: Message) -> dict[str, str]:
    """The path of what was made."""
    made = _named(message)
    namespace = getattr(made, "namespace", "") if made is message else ""
    return {"location": path_of(collection, made.name, namespace)}


def path_of(collection: str, name: str, namespace: str) -> str:
    query = f"?namespace={quote(namespace, safe='')}" if namespace not in ("", "default") else ""
    return f"{collection}/{quote(name, safe='')}{query}"


def _named(message: Any) -> Any:
    """The resource: the answer itself, or the first message in it."""
    if "name" in message.DESCRIPTOR.fields_by_name:
        return message
    first = next(field for field in message.DESCRIPTOR.fields if field.message_type is not None)
    return getattr(message, first.name)
