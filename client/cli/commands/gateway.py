"""`raftsched gateway`: HTTP for a cluster, by a process of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ...gateway.config import Limits
from ..exits import Exit, Trouble, reason_of, wrong_use
from ..options import command
from ..session import Invocation, check_pair, trusts

if TYPE_CHECKING:
    from ... import AsyncClient
    from ...gateway.config import Provider, Settings
    from ...gateway.server import Port

DEFAULT_LISTEN = "127.0.0.1:7480"
DEFAULTS = Limits()
T = TypeVar("T")
U = TypeVar("U")
LIMITS = {
    "connections": "The maximum of open connections.",
    "connections_by_address": "Of these, from one address.",
    "requests": "The maximum of requests under way; one address may have half.",
    "streams": "The maximum of streams and calls that wait; one address may have half.",
    "body_mb": "The maximum of bodies under way, in MiB; one address may have half.",
    "answers_mb": "The maximum of long answers not read yet, in MiB; one address half.",
}


def limits(body: Callable[..., None]) -> Callable[..., None]:
    """An option for each limit."""
    for name, text in reversed(LIMITS.items()):
        flag, default = f"--{name.replace('_', '-')}", getattr(DEFAULTS, name)
        # Of less an address could not send the largest import.
        kind = click.IntRange(min=32 if name == "body_mb" else 1)
        body = click.option(flag, type=kind, default=default, show_default=True, help=text)(body)
    return body


@command(
    None, "gateway",
    "raftsched gateway",
    "raftsched gateway --server a.example:7400,b.example:7400 --ca-file ca.pem",
    "raftsched gateway --listen 0.0.0.0:443 --tls-cert-file gw.pem --tls-key-file gw.key",
)  # fmt: skip
@click.option(
    "--listen",
    default=DEFAULT_LISTEN,
    metavar="HOST:PORT",
    show_default=True,
    help="Where HTTP is served; port 0 is any free one.",
)
@click.option(
    "--tls-cert-file", default="", metavar="FILE", help="HTTPS is served with this certificate."
)
@click.option("--tls-key-file", default="", metavar="FILE", help="The certificate's key.")
@click.option(
    "--insecure-http",
    is_flag=True,
    help="It listens beyond this machine without TLS: tokens can be read on the way.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which callers know this gateway; can be repeated. Without any, a "
    "gateway that listens beyond this machine is known by every name.",
)
@click.option(
    "--cors-origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="Pages of this origin may call, such as https://ops.example; can be repeated.",
)
@click.option(
    "--path-prefix",
    default="",
    metavar="/PATH",
    help="What stands before all paths, where a proxy serves other things too.",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="This address, or network as 10.0.0.0/8, is believed who it asks for (Forwarded, "
    "X-Forwarded-For); can be repeated.",
)
@click.option(
    "--oidc-issuer",
    default="",
    metavar="URL",
    help="People sign in on the web page by this identity provider, which the "
    "cluster must know (raftsched identity put).",
)
@click.option(
    "--oidc-client-id",
    default="",
    metavar="ID",
    help="As whom the gateway is known there; that is the audience of its tokens.",
)
@click.option(
    "--oidc-secret-file",
    default="",
    metavar="FILE",
    help="The client's secret; without it the client is a public one (PKCE).",
)
@click.option(
    "--oidc-scope",
    "oidc_scopes",
    multiple=True,
    metavar="NAME",
    help="What is asked for, openid among it; can be repeated. Without any: openid, "
    "profile, email.",
)
@limits
@click.option("--quiet", is_flag=True, help="It logs only what is wrong, and no requests.")
def gateway(
    session: Invocation, listen: str, tls_cert_file: str, tls_key_file: str, insecure_http: bool,
    hosts: tuple[str, ...], origins: tuple[str, ...], path_prefix: str,
    proxies: tuple[str, ...], oidc_issuer: str, oidc_client_id: str, oidc_secret_file: str,
    oidc_scopes: tuple[str, ...], quiet: bool, **given: int,
) -> None:  # fmt: skip
    """Serve HTTP and JSON for a cluster until SIGTERM or Ctrl-C.

    It has no rights of its own: each caller's token goes along to the cluster, and that of the
    context is not used. Requests are logged on stderr, one line of JSON each.
    """
    from ....proto import tracing
    from ...gateway.config import Settings
    from ...gateway.server import may_have
    from ...gateway.wire import networks, prefix_of
    from ...sdk.endpoints import is_loopback
    from ...worker.worker import loop_factory

    host, port = _address(listen)
    if bool(tls_cert_file) != bool(tls_key_file):
        raise wrong_use("a certificate and its key are two files", "",
                        "--tls-cert-file FILE --tls-key-file FILE")  # fmt: skip
    if tls_cert_file:
        check_pair(tls_cert_file, tls_key_file, "--tls-")
    local = is_loopback(listen)
    if not (local or tls_cert_file or insecure_http):
        raise wrong_use(
            f"{listen} can be reached from other machines, and callers show their tokens in HTTP",
            "whoever listens on the way could take them",
            "--tls-cert-file FILE --tls-key-file FILE, or in a trusted network --insecure-http",
        )
    given["connections"] = may_have(given["connections"])
    settings = Settings(
        Limits(**given), frozenset(origins),
        frozenset(hosts) if hosts or local else None, tls_cert_file, tls_key_file,
        _read("--path-prefix", "/PATH", prefix_of, path_prefix),
        _read("--trusted-proxy", "ADDRESS", networks, proxies),
        _provider(oidc_issuer, oidc_client_id, oidc_secret_file, oidc_scopes),
    )  # fmt: skip
    log = logging.StreamHandler(sys.stderr)
    with (
        tracing.running("raftsched-gateway"),
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        runner.run(_serve(session, host, port, settings, log, quiet=quiet))


# The word of the manual; the shared one stays for contexts and scripts.
next(one for one in gateway.params if one.name == "endpoints").opts.append("--server")


def _provider(
    issuer: str, client_id: str, secret_file: str, scopes: tuple[str, ...]
) -> Provider | None:
    """By whom people may sign in; None for nobody."""
    from ...gateway.config import Provider
    from ...gateway.fetch import is_address

    if not (issuer or client_id or secret_file or scopes):
        return None
    if not (issuer and client_id):
        raise wrong_use("an identity provider is an issuer and the client's id there", "",
                        "--oidc-issuer URL --oidc-client-id ID")  # fmt: skip
    if not is_address(issuer):
        raise wrong_use(f"cannot use --oidc-issuer {issuer[:200]}",
                        "it is no https address, nor http on loopback",
                        "--oidc-issuer https://id.example")  # fmt: skip
    if scopes and "openid" not in scopes:
        raise wrong_use("the provider sends no ID token without the scope openid", "",
                        "--oidc-scope openid")  # fmt: skip
    secret = ""
    if secret_file:
        try:
            secret = Path(secret_file).read_text().strip()
        except (OSError, UnicodeError) as error:
            why = reason_of(error) if isinstance(error, OSError) else "it is no text"
            raise wrong_use(f"cannot read {secret_file}", why,
                            "--oidc-secret-file FILE") from error  # fmt: skip
    made = Provider(issuer, client_id, secret)
    return dataclasses.replace(made, scopes=scopes) if scopes else made


def _read(flag: str, what: str, read: Callable[[T], U], given: T) -> U:
    try:
        return read(given)
    except ValueError as error:
        raise wrong_use(f"cannot use {flag}", str(error), f"{flag} {what}") from error


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise wrong_use(f"cannot listen on {text!r}", "it is not HOST:PORT",
                        f"--listen {DEFAULT_LISTEN}")  # fmt: skip
    return host.strip("[]"), int(port)


async def _serve(
    session: Invocation, host: str, port: int, settings: Settings,
    log: logging.Handler, *, quiet: bool,
) -> None:  # fmt: skip
    from ....cluster.local.systemd import give_signs, notify
    from ...gateway.app import Gateway
    from ...gateway.server import Lines, Port
    from ...sdk.tracing import TraceFields

    log.setFormatter(Lines())
    log.addFilter(TraceFields())
    logging.basicConfig(handlers=[log], level=logging.WARNING)
    own = logging.getLogger("raftsched.gateway")
    own.setLevel(logging.WARNING if quiet else logging.INFO)
    # What one caller waits for, or sent that is no HTTP, goes to that caller.
    for name in ("raftsched.client", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.ERROR)
    async with _client(session) as client, _client(session) as strangers:
        served = Port(Gateway(client, strangers, settings), settings)
        try:
            where = await served.start(host, port)
        except OSError as error:
            raise Trouble(
                f"cannot listen on {host}:{port}", reason_of(error),
                "raftsched gateway --listen HOST:PORT with another port", Exit.FAILED,
            ) from error  # fmt: skip
        scheme = "https" if settings.certificate else "http"
        own.info("listening", extra={"url": f"{scheme}://{where}", "cluster": session.endpoints})
        notify("READY=1")
        signs = asyncio.create_task(give_signs())
        await _until_signal(served)
        notify("STOPPING=1")
        await served.stop()
        signs.cancel()
        own.info("stopped")


async def _until_signal(served: Port) -> None:
    """Return when somebody asks this process to stop; raises what ended the port."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    asked = asyncio.create_task(stop.wait())
    await asyncio.wait({asked, served.task}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()


def _client(session: Invocation) -> AsyncClient:
    """To the cluster, with no token; callers bring theirs."""
    from ... import AsyncClient
    from ...sdk.endpoints import is_loopback

    given = trusts(session.values)
    away = [one for one in session.nodes() if not is_loopback(one)]
    if away and given["tls"] is None and not given["insecure"]:
        raise Trouble(
            "callers' tokens would be sent to other machines without encryption",
            [f"the cluster is at {', '.join(away)}, from: {session.values['endpoints'].origin}"],
            "--ca-file FILE, or, in a network that is trusted, --insecure yes",
            Exit.FORBIDDEN,
        )
    return AsyncClient(session.endpoints, timeout=session.timeout_s, **given)
