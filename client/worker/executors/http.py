"""Carries out a job by a call over HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any

from ....proto import signatures
from ....proto.addresses import AddressRules
from ....proto.v1.job_pb2 import HttpAction
from ...sdk.values import texts
from ..context import Context
from ..outcomes import PAYLOAD_BYTES_MAX, AttemptFailed, PermanentError, RetryLater
from . import executor
from .executor import TIMEOUT_S, Executor, result_of, with_secrets

if TYPE_CHECKING:
    import aiohttp

CONNECT_S = 10.0
RETRY_AFTER_MAX_S = 86_400.0
# So much of a refusal's body is shown.
WORDS_MAX = 1_024
# How long a body is, the library says; what a job says would cut it off, or wait for more of it.
FRAMING = {"content-length", "transfer-encoding"}
ALLOWED_BY = "allow it with --allow-address, or HttpExecutor(allow=...)"
CREDENTIALS = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*://)?[^/\\]*@")


class HttpExecutor(Executor):
    """Sends the payload to the URL of the action; another status than expected is a failure.

    Redirects are not followed, cookies not kept, proxies of the environment not used. Addresses of
    this machine, of its link and of the cloud's metadata are not called unless `allow` has them;
    both lists hold networks, addresses, and words such as "loopback" (proto/addresses.py). With
    `secrets`, the new one and perhaps the old one, calls are signed; `raftsched.client.webhooks`
    verifies that. At most `connections` are open, `per_host` of them to one host.

    The kind of a failure is "http.503" and so on, "http.connection", "http.denied", "http.timeout",
    "http.request" or "http.url".
    """

    name = "http"

    def __init__(
        self,
        *,
        timeout: float = TIMEOUT_S,
        connections: int = 100,
        per_host: int = 32,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        secrets: Sequence[str] = (),
    ) -> None:
        super().__init__(timeout)
        for name, count in (("connections", connections), ("per_host", per_host)):
            if count < 1:
                raise ValueError(f"{name} is {count!r}; it must be at least 1")
        self._rules = AddressRules(tuple(texts(allow, "allow")), tuple(texts(deny, "deny")))
        self._keys = signatures.keys_of(secrets)
        self._per_host = per_host
        if importlib.util.find_spec("aiohttp") is None:
            raise ImportError("the http executor needs aiohttp: pip install 'raftsched[http]'")
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def execute(self, context: Context) -> object:
        import aiohttp

        action = context.lease.action.http
        what = f"{action.method or 'POST'} {bare(action.url)}"
        try:
            return await self._call(context, action, what)
        except aiohttp.InvalidURL:
            # The library's own words repeat all of it.
            raise PermanentError(f"{what}: this is no URL", kind="http.url") from None
        except ValueError as error:
            raise PermanentError(f"{what}: {error}", kind="http.request") from None
        except TimeoutError as error:
            words = str(error) or f"no answer within {self._timeout:g} s"
            raise AttemptFailed(f"{what}: {words}", kind="http.timeout") from None
        except aiohttp.ClientError as error:
            from .http_connections import denied

            if (why := denied(error)) is not None:
                raise PermanentError(f"{what}: {why}; {ALLOWED_BY}", kind="http.denied") from None
            raise AttemptFailed(f"{what}: {_why(error)}", kind="http.connection") from None

    async def _call(self, context: Context, action: HttpAction, what: str) -> object:
        if not action.url.startswith(("http://", "https://")):
            raise PermanentError(f"{what}: write http:// or https://", kind="http.url")
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=self.timeout_s(context), sock_connect=CONNECT_S)
        async with self._opened().request(
            action.method or "POST",
            action.url,
            data=context.lease.payload.data or None,
            headers=self._headers(context, action),
            allow_redirects=False,
            timeout=timeout,
        ) as response:
            body = await _body(response)
            if not _expected(response.status, action):
                words = context.redaction.data(body, end=True)[:WORDS_MAX]
                raise _refusal(what, response, words)
            executor.warn_of(context, response.headers.get(executor.WARNING_HEADER))
            content_type = response.headers.get("Content-Type", "")
            return result_of(context, body[:PAYLOAD_BYTES_MAX], content_type, len(body))

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            from . import http_connections as doors

            self._session = aiohttp.ClientSession(
                connector=doors.connector(self._rules, self._connections, self._per_host),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "raftsched"},
                max_line_size=doors.LINE_BYTES_MAX,
                max_field_size=doors.LINE_BYTES_MAX,
            )
        return self._session

    def _headers(self, context: Context, action: HttpAction) -> dict[str, str]:
        body = context.lease.payload.data
        return _headers(
            context, action, signatures.signed(self._keys, context.run, int(time()), body)
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            # The library ends its connections in the next turn of the loop.
            await asyncio.sleep(0)


def bare(url: str) -> str:
    """A URL for people, without its credentials, its query and its fragment."""
    return CREDENTIALS.sub(r"\1", url.partition("#")[0].partition("?")[0])


def _headers(context: Context, action: HttpAction, signature: dict[str, str]) -> dict[str, str]:
    ours = {**executor.headers(context), **signature}
    names = {name.lower() for name in ours} | FRAMING
    given = with_secrets(
        context, action.headers, lambda text: not any(sign in text for sign in "\r\n\0"),
        "a header has no line end",
    )  # fmt: skip
    headers = {name: text for name, text in given.items() if name.lower() not in names}
    content_type = context.lease.payload.content_type
    if content_type and "content-type" not in {name.lower() for name in headers}:
        headers["Content-Type"] = content_type
    return {**headers, **ours}


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """One byte more than can be kept shows that there is more."""
    chunks, size = [], 0
    while size <= PAYLOAD_BYTES_MAX:
        chunk = await response.content.read(PAYLOAD_BYTES_MAX + 1 - size)
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


def _expected(status: int, action: HttpAction) -> bool:
    return status in action.expected_statuses if action.expected_statuses else 200 <= status <= 299


def _refusal(what: str, response: aiohttp.ClientResponse, body: bytes) -> AttemptFailed:
    words = body.decode("utf-8", "replace")
    message = f"{what}: {response.status} {response.reason or ''}: {words}".rstrip(": ")
    kind = f"http.{response.status}"
    after = _retry_after(response.headers.get("Retry-After", ""))
    if after is None:
        return AttemptFailed(message, kind=kind)
    return RetryLater(after, message, kind=kind)


def _why(error: aiohttp.ClientError) -> str:
    """The library's words; of an answer that is no HTTP without the URL, which they repeat whole,
    and without the lines that they point into."""
    return " ".join(str(getattr(error, "message", "") or error).split())


def _retry_after(text: Any) -> float | None:  # noqa: ANN401  # Whatever a server sent.
    try:
        seconds = float(text) if text.isdecimal() else _until(text)
    except (TypeError, ValueError, IndexError):
        return None
    return min(max(0.0, seconds), RETRY_AFTER_MAX_S)


def _until(text: str) -> float:
    when = parsedate_to_datetime(text)
    return (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
