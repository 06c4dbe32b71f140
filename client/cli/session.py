"""What a command works with: its settings, a client, a place to print."""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..sdk.lengths import parse_length
from .exits import NO_LEADER, Exit, Trouble, reason_of, with_program, wrong_use
from .paste import with_options
from .render.clean import echo, notify, visible
from .render.output import Output
from .settings import Value, resolve
from .times import rough_text

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from .. import Client

    Answer = TypeVar("Answer", bound=Message)
    Asked = TypeVar("Asked", bound=Message)
PAGE_SIZE = 1_000
# Nobody who sits before a terminal waits longer for one; an election takes a second.
LEADERLESS_S = 8.0
TIMEOUT_MAX_S = 24 * 3600.0  # As the SDK has it, which loads too much for --help.


class WaitWarnings(logging.Handler):
    """Says on stderr what the SDK warns of: that a call waits, and for which limit."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if NO_LEADER in message:
            message = "there is no leader yet; trying again (Ctrl-C ends it)"
        notify(f"Note: {message}")


class Invocation:
    """One run of one command."""

    def __init__(self, values: Mapping[str, Value], given: Mapping[str, Any]) -> None:
        self.values = values
        self.namespace = values["namespace"].value
        # The user named the namespace for this very command.
        self.namespace_is_given = values["namespace"].origin.startswith(("--", "RAFTSCHED_"))
        timeout = values["timeout"]
        self.timeout_s = parse_length(timeout.value) / 1000
        if not 0 < self.timeout_s <= TIMEOUT_MAX_S:
            why = "can be answered within" if not self.timeout_s else "may take as long as"
            raise wrong_use(
                f"no call {why} {timeout.value}",
                f"it comes from: {timeout.origin}", "--timeout 30s; the most is 24h",
            )  # fmt: skip
        # A cluster may be about to start.
        self.connect_timeout_s = 2.0
        self.dry_run = bool(given.get("dry_run"))
        self.stale = bool(given.get("stale"))
        self.may_be_stale = "stale" in given
        self.yes = bool(given.get("yes"))
        self.debug = bool(given.get("debug"))
        self.limit = int(given.get("limit") or 0)
        self.page_token = str(given.get("page_token") or "")
        self.out = Output(
            values["output"].value,
            time_style=values["time"].value,
            headers=not given.get("no_headers"),
            color=values["color"].value,
        )
        # What the request ids of this command's writes are made of.
        self.base_id = str(given.get("request_id") or "")
        self._writes = 0
        self._secret = ""
        # Of writes, for programs: printed at the end, as one document.
        self._answers: list[Message] = []

    @classmethod
    @contextmanager
    def of(cls, given: Mapping[str, Any]) -> Iterator[Invocation]:
        session = cls(resolve(given, given.get("context") or ""), given)
        sdk, waits = logging.getLogger("raftsched.client"), WaitWarnings(logging.WARNING)
        sdk.addHandler(waits)
        try:
            yield session
        except Trouble as trouble:
            trouble.then = with_options(trouble.then, session.values)
            raise
        finally:
            sdk.removeHandler(waits)
            if not session.out.is_table:
                session.out.several(session._answers)
            if "client" in vars(session):
                session.client.close()

    @property
    def endpoints(self) -> str:
        return self.values["endpoints"].value

    @cached_property
    def client(self) -> Client:
        """The client, once it is known that somebody listens: nobody waits 30 s to learn it."""
        from ..sdk.endpoints import parse
        from .connectivity import unreachable

        made = self.make_client()
        reasons = unreachable(parse(self.endpoints), min(self.connect_timeout_s, self.timeout_s))
        if reasons:
            made.close()
            raise Trouble(
                "no node can be reached",
                [*(f"{one}: {why}" for one, why in reasons.items()),
                 "start a cluster here (dev), find out why (doctor), or name another node"],
                "raftsched dev\nraftsched doctor\nthe same with --endpoints HOST:PORT",
                Exit.UNREACHABLE,
            )  # fmt: skip
        return made

    def shows(self, secret: str) -> None:
        """Show this in place of the access token that the user has."""
        self._secret = secret

    def use_secret(self, secret: str) -> None:
        """Go on with this secret, which was made just now."""
        self.shows(secret)
        vars(self).pop("client").close()

    @property
    def has_token(self) -> bool:
        return bool(self._secret or token_of(self.values, ""))

    def nodes(self) -> tuple[str, ...]:
        """The endpoints, one by one."""
        from ..sdk.endpoints import parse

        try:
            return parse(self.endpoints)
        except ValueError as wrong:
            raise wrong_use(
                f"cannot use the endpoints {self.endpoints!r}",
                [str(wrong), f"they come from: {self.values['endpoints'].origin}"],
                "--endpoints HOST:PORT,HOST:PORT",
            ) from wrong

    def make_client(self) -> Client:
        from .. import Client
        from ..sdk.links import Exposed

        self.nodes()
        try:
            return Client(
                self.endpoints,
                namespace=self.namespace,
                timeout=self.timeout_s,
                **credentials(self.values, self._secret),
            )
        except Exposed as wrong:
            raise Trouble(
                "the access token would be sent to other machines without encryption",
                [f"the endpoints are {self.endpoints}, from: {self.values['endpoints'].origin}",
                 "whoever listens on the way could take it"],
                "--ca-file FILE, or, in a network that is trusted, --insecure yes",
                Exit.FORBIDDEN,
            ) from wrong  # fmt: skip

    # Calls.

    def ask(self, request: Message, kind: type[Answer], doing: str, **options: Any) -> Answer:
        """Make a call; a refusal ends the command with what, why and what to type next."""
        from .refused import refusals

        options.setdefault("timeout", self.timeout_s)
        if self.values["timeout"].origin == "default":
            options.setdefault("leaderless", LEADERLESS_S)
        with refusals(self, doing):
            answer = self.client.ask(request, **options)
        if options.get("stale") and answer.age_ms is not None:
            echo(f"As of {rough_text(answer.age_ms)} ago, from {answer.endpoint}.", err=True)
        assert isinstance(answer.message, kind), answer
        return answer.message

    def read(self, request: Message, kind: type[Answer], doing: str) -> Answer:
        """Ask for something that changes nothing, as fresh as the user wants it."""
        return self.ask(request, kind, doing, stale=self.stale)

    def write(self, request: Asked) -> Asked:
        """Put the request id and `--dry-run` into a request."""
        request.request_id = self.request_id()  # type: ignore[attr-defined]
        request.validate_only = self.dry_run  # type: ignore[attr-defined]
        return request

    def request_id(self) -> str:
        """The id of this command's next write: the same in the same order when it is repeated."""
        self.base_id = self.base_id or str(uuid.uuid4())
        self._writes += 1
        return self.base_id if self._writes == 1 else f"{self.base_id}.{self._writes}"

    def pages(
        self, request: Message, kind: type[Answer], doing: str, *, limit: int | None = None
    ) -> Iterator[Answer]:
        """The pages of a list, as far as `--limit` goes."""
        limit = self.limit if limit is None else limit
        left = limit
        token = self.page_token
        while True:
            request.page_token = token  # type: ignore[attr-defined]
            request.page_size = min(left, PAGE_SIZE) if limit else PAGE_SIZE  # type: ignore[attr-defined]
            page = self.read(request, kind, doing)
            yield page
            token = page.next_page_token  # type: ignore[attr-defined]
            left -= sum(len(value) for field, value in page.ListFields() if field.is_repeated)
            if not token or (limit and left <= 0):
                return

    def show_list(
        self, request: Message, kind: type[Answer], field: str, doing: str, *, empty: str = ""
    ) -> None:
        """Print all pages of a list; `empty` is what to say to a person when it is. With `--count`
        only how many there are."""
        if getattr(request, "with_count", False):
            request.page_size = 1  # type: ignore[attr-defined]
            page: Any = self.read(request, kind, doing)
            echo(f"{page.count}" if page.count_is_exact else f"{page.count}+")
            return
        self.out.pages(self.pages(request, kind, doing), field, empty)

    # Words.

    def confirm(self, question: str) -> None:
        """Ask before something is destroyed."""
        if self.yes or self.dry_run:
            return
        if not (sys.stdin and sys.stdin.isatty()):
            raise wrong_use(question, "there is no terminal to ask on", "the same with --yes")
        if not click.confirm(visible(question), err=True):
            raise Trouble("Nothing was done.")

    def say(self, text: str, *, then: str = "") -> None:
        """Say to a person what was done, beside the data."""
        if self.out.is_table:
            notify(f"{text} (dry run: nothing was changed)" if self.dry_run else text)
            if then and self.out.for_person:
                echo(f"  Next: {with_program(with_options(then, self.values))}", err=True)

    def done(self, message: Message, text: str, *, then: str = "") -> None:
        """A write went through: a sentence for people, the answer for programs."""
        self.say(text, then=then)
        self._answers.append(message)


def many(count: int, noun: str) -> str:
    """ "1 run", "2,000 runs"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def waiting(count: int) -> str:
    return f"{many(count, 'run')} {'waits' if count == 1 else 'wait'}"


def read_text(path: str, flag: str, origin: str = "") -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text()
    except (OSError, ValueError) as wrong:  # What is no text, or no path.
        raise wrong_use(
            f"cannot read {path}", [reason_of(wrong), origin], f"name another file with {flag}"
        ) from wrong


def token_of(values: Mapping[str, Value], secret: str) -> str:
    """The access token to show; empty if there is none."""
    path, origin = values["token_file"].value, f"it comes from: {values['token_file'].origin}"
    if secret:
        return secret
    if not path:
        return checked_token(os.environ.get("RAFTSCHED_TOKEN", ""), "RAFTSCHED_TOKEN", "")
    token = read_text(path, "--token-file", origin).strip()
    if not token:
        raise wrong_use(f"{path} holds no access token", ["it is empty", origin],
                        "name another file with --token-file")  # fmt: skip
    return checked_token(token, path, origin)


def checked_token(token: str, where: str, origin: str) -> str:
    """Refuse what no token is; since it may hold one, none of it is shown."""
    if token.isascii() and token.isprintable():
        return token
    lines = len(token.splitlines())
    why = f"it has {lines} lines" if lines > 1 else "it has a character beyond ASCII or a control"
    raise wrong_use(
        f"{where} holds no access token",
        [f"{why}; a token is one line, which `raftsched token create` prints on stdout", origin],
        "write that line alone into it, as in: raftsched token create NAME --role viewer --to FILE",
    )


def check_certificates(ca_file: str, cert_file: str, key_file: str) -> None:
    """Refuse files that hold no certificate: of those gRPC says next to nothing."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if ca_file:
            context.load_verify_locations(ca_file)
    except (ssl.SSLError, OSError) as wrong:
        raise wrong_use(
            f"{ca_file} holds no certificate", reason_of(wrong),
            "--ca-file with the PEM file of the authority that signed the nodes' certificates",
        ) from wrong  # fmt: skip
    if cert_file:
        check_pair(cert_file, key_file)


def check_pair(cert_file: str, key_file: str, flag: str = "--") -> None:
    """Refuse files that are no certificate and its key; `flag` begins the options of both."""
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, password="")
    except (ssl.SSLError, OSError) as wrong:
        raise wrong_use(
            f"{cert_file} and {key_file} are no certificate and its key", reason_of(wrong),
            f"{flag}cert-file and {flag}key-file of one pair, as PEM files without a password",
        ) from wrong  # fmt: skip


def credentials(values: Mapping[str, Value], secret: str = "") -> dict[str, Any]:
    """What the client shows of us, and whom it trusts."""
    return {"token": token_of(values, secret) or None} | trusts(values)


def trusts(values: Mapping[str, Value]) -> dict[str, Any]:
    """How a client encrypts, and whom it trusts."""
    insecure = values["insecure"].value == "yes"
    files = {name: values[name].value for name in ("ca_file", "cert_file", "key_file")}
    if not any(files.values()):
        return {"tls": None, "insecure": insecure}
    for name, path in files.items():
        if path:
            read_text(path, f"--{name.replace('_', '-')}")
    if bool(files["cert_file"]) != bool(files["key_file"]):
        there, other = ("cert", "key") if files["cert_file"] else ("key", "cert")
        raise wrong_use(
            f"cannot show a certificate with --{there}-file alone",
            "a client's certificate is a pair of files", f"add --{other}-file FILE",
        )  # fmt: skip
    check_certificates(**files)
    from .. import Tls

    tls = Tls(files["ca_file"] or None, files["cert_file"] or None, files["key_file"] or None)
    return {"tls": tls, "insecure": insecure}
