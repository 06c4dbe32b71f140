"""What stands between a caller and the gateway: proxies that are trusted, a path in front of all
others, compression, and the trace that a request belongs to."""

from __future__ import annotations

import ipaddress
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from .headers import Headers

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# W3C: version, trace, span, flags; the first two ids are not all zeros.
TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
TRACE_BYTES = 512
FORWARDED_FOR = re.compile(r'(?:^|[;,\s])for="?([^";,\s]+)"?', re.IGNORECASE)
FORWARDED_PROTO = re.compile(r'(?:^|[;,\s])proto="?([a-z]+)"?', re.IGNORECASE)
# Shorter answers would not become shorter.
PACKED_BYTES = 1_024
PACKED_LEVEL = 1
# So much of the header that names codings is looked at.
LIST_MAX = 1_000
# A chain of proxies longer than this is not followed.
HOPS_MAX = 20


def networks(words: Iterable[str]) -> tuple[Network, ...]:
    """Of addresses and of networks in CIDR form; ValueError for what is neither."""
    return tuple(ipaddress.ip_network(word, strict=False) for word in words)


def is_in(address: str, trusted: Sequence[Network]) -> bool:
    try:
        one = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(one in network for network in trusted)


def caller_of(peer: str, headers: Headers, trusted: Sequence[Network]) -> str:
    """The address of who asks: of the connection, unless a trusted proxy names another one."""
    if not is_in(peer, trusted):
        return peer
    for hop in reversed(_hops(headers)[-HOPS_MAX:]):
        if not _is_address(hop):
            break
        peer = hop
        if not is_in(hop, trusted):
            break
    return peer


def _hops(headers: Headers) -> list[str]:
    """Who asked whom, as the proxies say, from the caller on; `Forwarded` counts first."""
    forwarded = ",".join(headers.all("forwarded"))
    if forwarded:
        return [_bare(one) for one in FORWARDED_FOR.findall(forwarded)]
    return [_bare(one) for one in ",".join(headers.all("x-forwarded-for")).split(",")]


def was_https(headers: Headers) -> bool:
    """Whether the caller spoke TLS to the proxy that came first, as the last one says."""
    forwarded = ",".join(headers.all("forwarded"))
    if forwarded:
        found = FORWARDED_PROTO.findall(forwarded)
    else:
        found = [one.strip() for one in headers.get("x-forwarded-proto", "").split(",")]
    return bool(found) and found[0].lower() == "https"


def _bare(word: str) -> str:
    """Without port and brackets."""
    word = word.strip()
    if word.startswith("["):
        return word[1:].partition("]")[0]
    return word.partition(":")[0] if word.count(":") == 1 else word


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True


def prefix_of(given: str) -> str:
    """A path in front of all others, "/a/b"; "" for none. ValueError for what is no path."""
    bare = given.strip("/")
    if not bare:
        return ""
    if not re.fullmatch(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*", bare) or ".." in bare.split("/"):
        raise ValueError(f"{given!r} is no path; write /name or /name/name")
    return f"/{bare}"


def without(prefix: str, path: str) -> str:
    """A path as the table has it. A proxy may have taken the prefix off already."""
    rest = path.removeprefix(prefix)
    return rest if prefix and rest != path and rest[:1] == "/" else path


def takes_gzip(headers: Headers) -> bool:
    for part in headers.get("accept-encoding", "")[:LIST_MAX].split(","):
        coding, *parameters = (word.strip().lower() for word in part.split(";"))
        if coding in ("gzip", "*"):
            return not any(re.fullmatch(r"q=0(\.0*)?", one) for one in parameters)
    return False


def packed(body: bytes) -> bytes:
    """As gzip."""
    made = zlib.compressobj(PACKED_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return made.compress(body) + made.flush()


def put_trace(request: Any, headers: Headers) -> None:
    """The run that is triggered belongs to the trace of the request, unless it says another one."""
    trace = trace_of(headers)
    if not trace or "trace_context" not in request.DESCRIPTOR.fields_by_name:
        return
    if not request.HasField("trace_context"):
        request.trace_context.traceparent = trace
        state = headers.get("tracestate", "").strip()
        if state.isascii() and len(trace) + len(state) <= TRACE_BYTES:
            request.trace_context.tracestate = state


def trace_of(headers: Headers) -> str:
    """The `traceparent` of a request; "" for none, and for what is none."""
    given = headers.get("traceparent", "").strip()
    return given if TRACE.fullmatch(given) else ""
