"""`raftsched tls`: an authority and certificates of your own, for a cluster that has no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exits import Exit, Trouble, reason_of, wrong_use
from ..lazy import ExampleGroup
from ..options import command
from ..render.clean import echo
from ..session import Invocation, many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .authority import Issued

NODE_EXAMPLE = "--node n1=a.example --node n2=b.example --node n3=c.example"
PLACE = "/etc/raftsched"
COLUMNS = ("name", "host", "until", "certificate")
DAYS, AUTHORITY_DAYS = 397, 3_650
SOON_DAYS = 30


@click.group(
    cls=ExampleGroup,
    examples=(f"raftsched tls init tls {NODE_EXAMPLE}", "raftsched tls renew tls"),
)
def tls() -> None:
    """Certificates of your own: an authority, and one for each node."""


@command(
    tls, "init",
    f"raftsched tls init tls {NODE_EXAMPLE}",
    f"raftsched tls init tls {NODE_EXAMPLE} --other gateway=web.example",
)  # fmt: skip
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--node", "nodes", multiple=True, required=True, metavar="NAME=HOST",
    help="A node, and where others and clients find it; can be repeated.",
)  # fmt: skip
@click.option(
    "--other", "others", multiple=True, metavar="NAME=HOST",
    help="A certificate for something else, such as a gateway; can be repeated.",
)  # fmt: skip
@click.option(
    "--cluster", "cluster_name", default="raftsched", show_default=True, metavar="NAME",
    help="The cluster's name.",
)  # fmt: skip
@click.option(
    "--days", type=click.IntRange(1, 3_650), default=DAYS, show_default=True,
    help="How long a certificate is valid; the authority ten years.",
)  # fmt: skip
@click.option(
    "--place", default=PLACE, show_default=True, metavar="DIR",
    help="Where the files of a node will lie on its machine.",
)  # fmt: skip
def init(
    session: Invocation, folder: Path, nodes: tuple[str, ...], others: tuple[str, ...],
    cluster_name: str, days: int, place: str,
) -> None:  # fmt: skip
    """Make an authority in FOLDER, and for each node a folder to be copied to its machine.

    It holds the certificate, its key and a node.toml that is ready to use: TLS between the nodes
    and for clients, access tokens on. The authority's key (ca.key) stays here: whoever has it can
    pose as any node. `raftsched tls renew` needs it.
    """
    from .authority import CONFIG, Authority, node_toml

    places = {**hosts_of("--node", nodes), **hosts_of("--other", others)}
    if len(places) < len(nodes) + len(others):
        raise wrong_use("a name stands twice", ", ".join((*nodes, *others)), "each name once")
    members = hosts_of("--node", nodes)
    with files_of(folder):
        if (folder / "ca.key").exists():
            raise Trouble(
                f"{folder} holds an authority already",
                "another one would shut out all that the first has signed",
                f"raftsched tls renew {folder}", Exit.CONFLICT,
            )  # fmt: skip
        authority = Authority.make(folder, cluster_name, AUTHORITY_DAYS)
        made = [authority.issue(name, [name, host], days) for name, host in places.items()]
        for name in members:
            text = node_toml(name, cluster_name, members, place)
            (folder / name / CONFIG).write_text(text)
    show(session, made)
    session.say(
        f"{many(len(made), 'certificate')} in {folder}, signed by {folder / 'ca.pem'}. Keep "
        f"{folder / 'ca.key'} where no node is.\n"
        "Copy each folder to its machine, there readable by the node's user alone:"
    )
    if session.out.is_table:
        for name, host in places.items():
            echo(f"  scp -r {folder / name}/. {host}:{place}/", err=True)
    session.say("", then=f"raftsched node --config {place}/node.toml  (on each machine)")


@command(
    tls, "renew",
    "raftsched tls renew tls",
    "raftsched tls renew tls n2 --days 90",
    "raftsched tls renew tls --if-soon",
)  # fmt: skip
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--days", type=click.IntRange(1, 3_650), default=DAYS, show_default=True,
    help="How long a certificate is valid.",
)  # fmt: skip
@click.option(
    "--if-soon", is_flag=True, help=f"Only those that end within {SOON_DAYS} days."
)  # fmt: skip
def renew(
    session: Invocation, folder: Path, names: tuple[str, ...], days: int, if_soon: bool
) -> None:
    """Make new certificates and keys for those in FOLDER, by the same authority.

    Copied over the former files they are read by nodes and gateways within seconds, without a
    restart. Connections that stand go on.
    """
    from .authority import Authority

    with files_of(folder):
        authority = Authority.read(folder)
        known = authority.names()
        if unknown := [name for name in names if name not in known]:
            raise Trouble(
                f"{folder} holds no certificate of {unknown[0]}", f"there are {', '.join(known)}",
                f"raftsched tls renew {folder} {known[0] if known else 'NAME'}", Exit.NOT_FOUND,
            )  # fmt: skip
        wanted = names or known
        if if_soon:
            wanted = tuple(name for name in wanted if authority.days_left(name) < SOON_DAYS)
        made = [authority.renew(name, days) for name in wanted]
    show(session, made)
    if not made:
        session.say(f"None of {many(len(known), 'certificate')} ends within {SOON_DAYS} days.")
        return
    session.say(f"{many(len(made), 'certificate')} made anew; copy each over the former:")
    if session.out.is_table:
        for one in made:
            echo(f"  scp {one.certificate} {one.key} {one.host}:{PLACE}/", err=True)
    short = [one for one in made if one.is_cut]
    if short:
        session.out.paint(
            f"They end with the authority, sooner than {days} days: make another one with "
            "raftsched tls init before.", "yellow", err=True,
        )  # fmt: skip


def show(session: Invocation, made: Sequence[Issued]) -> None:
    rows = [(one.name, one.host, f"{one.until:%Y-%m-%d}", str(one.certificate)) for one in made]
    if not session.out.is_table:
        session.out.records([dict(zip(COLUMNS, row, strict=True)) for row in rows])
        return
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        echo("  ".join(text.ljust(width) for text, width in zip(row, wide, strict=True)).rstrip())


def hosts_of(flag: str, words: Sequence[str]) -> dict[str, str]:
    """Names with their hosts."""
    from .authority import NAME

    found = {}
    for word in words:
        name, equals, host = word.partition("=")
        if (
            not equals
            or not host
            or not NAME.fullmatch(name)
            or "/" in host
            or host.count(":") == 1
        ):
            raise wrong_use(
                f"cannot use {flag} {word}",
                "it is not NAME=HOST; names are of a-z, 0-9, - and _, hosts have no port",
                f"{flag} n1=a.example",
            )
        found[name] = host
    return found


@contextmanager
def files_of(folder: Path) -> Iterator[None]:
    """What cannot be read or written ends the command with its reason."""
    try:
        yield
    except OSError as error:
        raise wrong_use(
            f"cannot use {error.filename or folder}", reason_of(error), "another FOLDER"
        ) from error
    except ValueError as error:
        raise wrong_use(
            f"{folder} holds no authority of `raftsched tls init`",
            str(error),
            f"raftsched tls init {folder} {NODE_EXAMPLE}",
        ) from error
