"""The body of a request: no more of it is kept than there is room for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .config import BODY_S, KNOWN_BYTES
from .exchange import Exchange, Left
from .headers import Headers
from .problems import GatewayRefusal


def has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def declared(headers: Headers, maximum: int) -> int:
    """The bytes that a body will have, 0 if it does not say; refused if too many."""
    length = headers.get("content-length", "")
    size = int(length) if length.isdecimal() else 0
    if size > maximum:
        raise too_large(size, maximum)
    return size


def too_large(size: int, maximum: int) -> GatewayRefusal:
    return GatewayRefusal(
        "LIMIT_EXCEEDED",
        f"the body has {size:,} bytes or more, and this call takes {maximum:,}; send less at once, "
        "or keep large payloads elsewhere and send their address",
        {"limit": "body", "maximum": str(maximum), "actual": str(size)},
        status=413,
    )


async def read_body(
    exchange: Exchange, maximum: int, keep: Callable[[int], None],
    check_caller: Callable[[], Awaitable[None]],
) -> bytes:  # fmt: skip
    """All of it, in time. `keep` makes room for what came; who sends much is checked before more
    is read than `KNOWN_BYTES`."""
    parts, size = list[bytes](), 0
    expected, known = declared(exchange.headers, maximum), False
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                if not known and max(size, expected) > KNOWN_BYTES:
                    known = True
                    await check_caller()
                message = await exchange.receive()
                if message["type"] == "http.disconnect":
                    raise Left
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > maximum:
                    raise too_large(size, maximum)
                keep(len(parts[-1]))
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise GatewayRefusal(
            "DEADLINE_PASSED", f"the body did not come within {BODY_S:g} s; send it faster",
            {"seconds": f"{BODY_S:g}"}, status=408, headers={"connection": "close"},
        ) from None  # fmt: skip
