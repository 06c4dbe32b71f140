"""Signing in on the web page: a cookie that holds the caller's own token, and nothing kept here.

So it opens every gateway of the same name, and goes when the browser forgets it or the cluster does
not know the token any more. No script can read it, no page of another site sends it (SameSite), and
what it is sent with must come from our own page: a call that may change something is refused unless
the browser says so by `Sec-Fetch-Site`. A token in the header Authorization is taken alone.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from google.protobuf.json_format import MessageToDict

from ...proto.v1 import access_pb2
from ..errors import RaftschedError
from . import manners
from .config import Settings
from .exchange import Answered, Exchange
from .headers import Headers
from .oidc import AWAY_S, BACK, BEGIN, Oidc
from .pages import HEADERS as PAGE_HEADERS
from .pages import HTML, refused_page
from .problems import JSON, GatewayRefusal, of_error

PATH = "/session"
FORM = "application/x-www-form-urlencoded"
COOKIE = "raftsched"
# As RFC 6750 writes one; so it needs no quoting in a cookie.
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# A browser keeps 4,096 bytes of a cookie with its name and attributes, so a token has some of them.
PART_CHARS, PARTS = 3_500, 2
BODY_BYTES, FIELDS_MAX = 16 << 10, 10
LAST = "Expires=Thu, 01 Jan 1970 00:00:00 GMT"


class SignIn:
    """See the head of this file."""

    def __init__(
        self,
        settings: Settings,
        who: Callable[[Exchange, str], Awaitable[access_pb2.Caller]],
        read: Callable[[Exchange], Awaitable[bytes]],
    ) -> None:
        """`who` asks the cluster whose token that is; `read` gives the body of a request."""
        self._settings, self._who, self._read = settings, who, read
        self._oidc = Oidc(settings.provider, settings.prefix) if settings.provider else None

    def token_of(self, exchange: Exchange) -> str:
        """The token of whoever is signed in; "" for nobody. Refuses what would change something
        and does not come from our own page."""
        token = held(exchange.headers, self._name(exchange))
        if not token:
            return ""
        if exchange.verb == "GET":
            # Pages from elsewhere, and names of this machine with another port, are strangers.
            site = exchange.headers.get("sec-fetch-site", "")
            return token if site in ("", "none", "same-origin") else ""
        check_own_page(exchange.headers)
        return token

    async def answer(self, exchange: Exchange) -> Answered:
        """GET: whether somebody is signed in, and by whom they may. POST: sign in by a token.
        DELETE: sign out. Below it is the way to an identity provider and back."""
        if self._oidc is not None and exchange.path in (BEGIN, BACK) and exchange.verb == "GET":
            try:
                return await self._by_provider(exchange, self._oidc)
            except (GatewayRefusal, RaftschedError) as error:
                # A browser is led here, so a person reads it.
                if "text/html" not in exchange.headers.get("accept", ""):
                    raise
                refused = error if isinstance(error, GatewayRefusal) else of_error(error)
                return self._refusal_page(exchange, refused)
        if exchange.path != PATH:
            raise GatewayRefusal(
                "ROUTE_NOT_FOUND", f"nothing has the path {exchange.path[:200]!r}; sign in at "
                f"{PATH}", {"path": exchange.path[:200]},
            )  # fmt: skip
        if exchange.verb == "GET":
            name = self._oidc.provider.name if self._oidc is not None else ""
            return shown(signed_in=bool(self.token_of(exchange)), provider=name)
        if exchange.verb not in ("POST", "DELETE"):
            allow = "DELETE, GET, HEAD, POST"
            raise GatewayRefusal(
                "METHOD_NOT_ALLOWED", f"{PATH} takes {allow}, and not {exchange.verb[:20]}",
                {"method": exchange.verb[:20], "allow": allow}, headers={"allow": allow},
            )  # fmt: skip
        check_own_page(exchange.headers)
        if exchange.verb == "DELETE":
            return shown(signed_in=False, cookies=self.cookies(exchange, ""))
        media = media_of(exchange.headers)
        given, is_form = given_in(await self._read(exchange), media), media == FORM
        token = str(given.get("token", "")).strip()
        caller = await self.check(exchange, token)
        cookies = self.cookies(exchange, token)
        if is_form:
            place = self._settings.prefix + place_of(str(given.get("to", "")))
            return Answered(b"", 303, {"location": place}, cookies=cookies)
        return Answered(msgspec.json.encode(MessageToDict(caller)) + b"\n", cookies=cookies)

    def _refusal_page(self, exchange: Exchange, refused: GatewayRefusal) -> Answered:
        exchange.reason = refused.word
        page = refused_page(self._settings.prefix, refused.word, str(refused))
        headers = PAGE_HEADERS | refused.headers | {"cache-control": "no-store"}
        return Answered(page, refused.status, headers, HTML)

    async def _by_provider(self, exchange: Exchange, oidc: Oidc) -> Answered:
        name = f"{self._name(exchange)}-oidc"
        secure = "; Secure" if exchange.is_secure else ""
        # The provider leads the browser back, so that one comes from another site.
        about = f"; Path={self._settings.prefix or '/'}; HttpOnly; SameSite=Lax{secure}"
        if exchange.path == BEGIN:
            query = bytes(exchange.scope["query_string"]).decode("latin-1")
            to = place_of(dict(parse_qsl(query)).get("to", ""))
            place, kept = await oidc.begin(exchange, to)
            cookie = f"{name}={kept}{about}; Max-Age={AWAY_S}"
            return Answered(b"", 302, {"location": place}, cookies=(cookie,))
        token, to = await oidc.finish(exchange, cookie_of(exchange.headers, name))
        await self.check(exchange, token)
        cookies = (*self.cookies(exchange, token), f"{name}={about}; {LAST}")
        place = self._settings.prefix + place_of(to)
        return Answered(b"", 303, {"location": place}, cookies=cookies)

    async def check(self, exchange: Exchange, token: str) -> access_pb2.Caller:
        """Whose token that is; refuses one that cannot be kept, or that the cluster refuses."""
        if not TOKEN.fullmatch(token):
            raise GatewayRefusal(
                "FIELD_INVALID",
                "token: it is no access token; paste the whole secret, which begins with rs_",
                {"field": "token"},
            )
        if len(token) > PART_CHARS * PARTS:
            raise GatewayRefusal(
                "FIELD_INVALID",
                f"token: it has {len(token):,} characters, and {PART_CHARS * PARTS:,} can be kept; "
                "have the identity provider put fewer claims into it",
                {"field": "token"},
            )  # fmt: skip
        return await self._who(exchange, token)

    def _name(self, exchange: Exchange) -> str:
        return name_of(exchange.headers, is_secure=exchange.is_secure, prefix=self._settings.prefix)

    def cookies(self, exchange: Exchange, token: str) -> tuple[str, ...]:
        """What makes a browser keep this token, or, if there is none, forget the one it has."""
        name, secure = self._name(exchange), "; Secure" if exchange.is_secure else ""
        about = f"; Path={self._settings.prefix or '/'}; HttpOnly; SameSite=Strict{secure}"
        parts = [token[at : at + PART_CHARS] for at in range(0, PARTS * PART_CHARS, PART_CHARS)]
        return tuple(
            f"{name}-{number}={part}{about}" + ("" if part else f"; {LAST}")
            for number, part in enumerate(parts)
        )


def name_of(headers: Headers, *, is_secure: bool, prefix: str) -> str:
    """Cookies know no ports, and a desk may have several clusters."""
    port = headers.get("host", "").rpartition(":")[2]
    name = f"{COOKIE}-{port}" if port.isdecimal() else COOKIE
    # Which no other name of the same domain can set.
    return f"__Host-{name}" if is_secure and not prefix else name


def held(headers: Headers, name: str) -> str:
    """The token in the cookies of a request. Of two with one name somebody else has set one, so
    neither counts."""
    parts = [cookie_of(headers, f"{name}-{number}") for number in range(PARTS)]
    token = "".join(parts)
    return token if parts[0] and TOKEN.fullmatch(token) else ""


def cookie_of(headers: Headers, name: str) -> str:
    pairs = (pair.strip().partition("=") for pair in ";".join(headers.all("cookie")).split(";"))
    found = [value for key, _, value in pairs if key == name]
    return found[0] if len(found) == 1 else ""


def check_own_page(headers: Headers) -> None:
    """Refuse what no page of this gateway has sent."""
    origin, site = headers.get("origin", ""), headers.get("sec-fetch-site", "")
    ours = not origin or manners.is_own(origin, headers)
    if site == "same-origin" and ours:
        return
    why = f"it comes from {origin or site}" if origin or site else "nothing says where it is from"
    raise GatewayRefusal(
        "FORBIDDEN",
        "who is signed in by a cookie may change things on this gateway's own page alone, and "
        f"{why}; open the page by https or on this machine, or show the token as Authorization: "
        "Bearer SECRET",
        {"origin": origin},
    )  # fmt: skip


def place_of(given: str) -> str:
    """A place of the web page, "/" for what is none."""
    plain = given.isascii() and given.isprintable() and "\\" not in given
    return given if plain and given[:1] == "/" and given[:2] != "//" else "/"


def shown(*, signed_in: bool, provider: str = "", cookies: tuple[str, ...] = ()) -> Answered:
    document: dict[str, object] = {"signedIn": signed_in}
    if provider:
        document["provider"] = {"name": provider, "path": BEGIN}
    return Answered(msgspec.json.encode(document) + b"\n", cookies=cookies)


def media_of(headers: Headers) -> str:
    """JSON or a form."""
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in (JSON, FORM):
        raise GatewayRefusal(
            "MEDIA_UNSUPPORTED",
            f"the body is {media or 'of no type'}; send JSON with Content-Type: {JSON}, or a form",
            {"content_type": media},
        )
    return media


def given_in(body: bytes, media: str) -> Mapping[str, Any]:
    try:
        if media == FORM:
            return dict(parse_qsl(body.decode("latin-1"), max_num_fields=FIELDS_MAX))
        return msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, msgspec.DecodeError) as error:
        raise GatewayRefusal(
            "REQUEST_MALFORMED", f"the body is neither a JSON object nor a form: {error}",
            {"detail": str(error)},
        ) from None  # fmt: skip
