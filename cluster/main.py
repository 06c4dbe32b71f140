"""`raftsched node` and `raftsched dev`.

What they need is loaded when they run: their help pages, and `config`, load no gRPC and no RocksDB.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .ops.config import KEYS, PREFIX, ConfigWrong
from .ops.config_checks import warnings
from .ops.config_load import Loaded, load
from .ops.config_text import EXAMPLE, text_of
from .ops.exits import NodeCannotStart, NodeExit

if TYPE_CHECKING:
    from .ops.recovery import Renewed, Standing

Command = Callable[..., None]
FILE_VARIABLE = f"{PREFIX}CONFIG"
EXITS = """\b
Exit codes:
  0  it was stopped, or removed from the cluster
  1  it ended by itself; the last line says why
  2  the command line or the configuration is wrong
  3  it was asked to stop and needed over 3 s; nothing is lost by that
 10  the folder is not empty and not a node's
 11  the folder is in use
 12  the folder is of another cluster
 13  the folder is of another node
 14  the folder was written by a newer version
 15  the folder cannot be written to
 16  the disk is full
 17  an address cannot be listened on
 18  the disk lost something; empty the folder, and the node fetches all anew
 19  the file is no backup that can be put back
 20  it would be a second cluster beside one that lives
 21  it was removed from the cluster; empty the folder and add the node again
 22  a file would grow over the limit on file sizes (ulimit -f); raise it
 23  another disk took its place in the cluster; empty the folder
"""


def config_options(command: Command) -> Command:
    """The file, and a flag for each key."""
    for key in reversed(KEYS.values()):
        what: dict[str, Any] = (
            {"is_flag": True, "flag_value": "true"} if key.default is False else {}
        )
        command = click.option(
            key.flag, key.path.replace(".", "__"), default=None, metavar=None if what else "VALUE",
            help=key.comment, allow_from_autoenv=False, **what,
        )(command)  # fmt: skip
    command = click.option(
        "--no-gateway", "gateway__listen", flag_value="", default=None,
        help="It starts no gateway, as --gateway-listen '' does.", allow_from_autoenv=False,
    )(command)  # fmt: skip
    return click.option(
        "--config", "file", type=click.Path(path_type=Path, dir_okay=False), default=None,
        envvar=FILE_VARIABLE, show_envvar=True, metavar="FILE", help="The TOML file, if any.",
    )(command)  # fmt: skip


def read_config(file: Path | None, flags: dict[str, str | None]) -> Loaded:
    """The configuration, or the end of the process with a line for each fault."""
    given = {name.replace("__", "."): text for name, text in flags.items() if text is not None}
    try:
        return load(file, os.environ, given)
    except ConfigWrong as error:
        refuse(NodeExit.CONFIG, error.faults)


def refuse(code: NodeExit, lines: list[str]) -> NoReturn:
    for line in lines:
        click.echo(f"raftsched node: {line}", err=True)
    sys.exit(code)


@click.group(
    invoke_without_command=True,
    epilog=EXITS,
    help=f"""Run one node of a cluster, in the foreground, until SIGTERM or Ctrl-C.

Flags win over the environment ({PREFIX}NAME and so on), that over the file, that over defaults.

\b
Examples:
  raftsched node config init node.toml
  raftsched node --config node.toml
  raftsched node --name n1 --folder n1 \\
      --members n1=127.0.0.1:7410/127.0.0.1:7400""",
)
@config_options
# For tests: neither a key of the configuration nor a variable, so nobody gets it by accident.
@click.option(
    "--virtual-clock", "clock", type=click.Path(path_type=Path), hidden=True,
    allow_from_autoenv=False,
)  # fmt: skip
@click.pass_context
def node(
    context: click.Context, /, file: Path | None, clock: Path | None, **flags: str | None
) -> None:
    if context.invoked_subcommand is not None:
        if any(given is not None for given in (file, clock, *flags.values())):
            raise click.UsageError(
                f"options go behind the words: raftsched node {context.invoked_subcommand} ..."
            )
        return
    loaded = read_config(file, flags)
    # gRPC's own lines go to stderr past our log, and say nothing that an error does not say.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from .ops.lifecycle import live

    try:
        code = run(live(loaded.config, clock))
    except ConfigWrong as error:
        refuse(NodeExit.CONFIG, error.faults)
    except NodeCannotStart as error:
        refuse(error.code, [str(error)])
    sys.exit(code)


def run(life: Coroutine[Any, Any, NodeExit]) -> NodeExit:
    """On the faster loop where it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        from uvloop import new_event_loop as factory
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(life)


@node.group()
def config() -> None:
    """The node's configuration: write, check, show.

    \b
    Examples:
      raftsched node config init node.toml
    """


@config.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--force", is_flag=True, help="A file that is there is replaced.")
def init(file: Path | None, force: bool) -> None:
    """Write FILE with every key, its default and what it means; without FILE, print it.

    \b
    Examples:
      raftsched node config init node.toml
    """
    text = text_of(EXAMPLE)
    if file is None:
        click.echo(text, nl=False)
        return
    try:
        with file.open("w" if force else "x") as opened:
            opened.write(text)
    except FileExistsError:
        refuse(NodeExit.CONFIG, [f"{file} is there already; --force replaces it"])
    except OSError as error:
        refuse(NodeExit.CONFIG, [f"{file} cannot be written: {error.strerror}"])
    click.echo(f"wrote {file}; next: raftsched node config check --config {file}", err=True)


@config.command()
@config_options
def check(file: Path | None, **flags: str | None) -> None:
    """Say whether a node would take this configuration, without starting it.

    \b
    Examples:
      raftsched node config check --config node.toml
    """
    from .node.secret_keys import KeysWrong, SecretKeys
    from .ops import tls

    loaded = read_config(file, flags)
    try:
        tls.peer_contexts(loaded.config)
        tls.server(loaded.config)
    except ConfigWrong as error:
        refuse(NodeExit.CONFIG, error.faults)
    try:
        SecretKeys(loaded.config.secrets.key_file, loaded.config.secrets.key_command)
    except KeysWrong as error:
        refuse(NodeExit.CONFIG, [str(error)])
    certificates = tls.faults(loaded.config)
    if certificates:
        refuse(NodeExit.CONFIG, certificates)
    for warning in warnings(loaded.config):
        click.echo(f"note: {warning}", err=True)
    count = len(loaded.config.members)
    click.echo(f"{loaded.config.name} of {count}: the configuration is sound")
    if count % 2 == 0:
        losses = (count - 1) // 2
        click.echo(
            f"note: {count} nodes stand the loss of {losses}, no more than {count - 1} would",
            err=True,
        )


@config.command()
@click.option("--origin", is_flag=True, help="Each value is shown with where it comes from.")
@config_options
def show(file: Path | None, origin: bool, **flags: str | None) -> None:
    """Print the configuration a node would have, as a file of it.

    \b
    Examples:
      raftsched node config show --config node.toml --origin
    """
    loaded = read_config(file, flags)
    origins = loaded.origins if origin else dict.fromkeys(loaded.origins, "")
    click.echo(text_of(loaded.config, origins), nl=False)


@node.command(
    help="""Put a backup back: make an empty folder that of a node that begins a new cluster.

The cluster of the backup must be lost or stopped. Do this on ONE node; the others of the
configuration start with empty folders and fetch all from it, and once a majority has, they stand
the loss of a node again. Every lease has lapsed, so what ran when the backup was made runs again;
access tokens, history and ledger are those of the backup, and what became due since is late.

\b
Examples:
  raftsched node restore nightly.tar --config node.toml
  raftsched node --config node.toml""",
)
@click.argument("archive", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--other-cluster",
    is_flag=True,
    help="FILE is of a cluster with another name, as for a rehearsal. Its jobs run here too.",
)
@config_options
def restore(archive: Path, other_cluster: bool, file: Path | None, **flags: str | None) -> None:
    loaded = read_config(file, flags)
    from .ops import recovery

    with ending_well():
        made = recovery.restore(loaded.config, archive, other=other_cluster)
    report(made, loaded.config.name)


@node.command(
    help="""Go on with what ONE node holds when the majority is lost for good.

Stop all nodes. With --look each shows how far its copy goes; choose the one with the highest term
and, among these, the highest index. What was acknowledged by the lost nodes alone is gone. The
others come back with EMPTY folders and fetch all from this one. Leases have lapsed, since nobody
knows how they ended. Refused while the nodes that answer are a majority with this one.

\b
Examples:
  raftsched node recover --look --config node.toml
  raftsched node recover --config node.toml
  raftsched node --config node.toml""",
)
@click.option("--look", is_flag=True, help="Only show what the folder holds.")
@click.option("--confirm", metavar="CLUSTER", help="The cluster's name, in place of typing it.")
@config_options
def recover(look: bool, confirm: str | None, file: Path | None, **flags: str | None) -> None:
    config = read_config(file, flags).config
    from .ops import recovery

    typed = confirm or ""

    def confirmed(standing: recovery.Standing) -> bool:
        nonlocal typed
        click.echo(story_of(standing, config.name), err=True)
        answer = confirm
        if answer is None and sys.stdin is not None and sys.stdin.isatty():
            answer = click.prompt(
                "If the others can come back, this makes two clusters out of one. To go on, type "
                "the cluster's name", err=True,
            )  # fmt: skip
        typed = answer or ""
        return answer == config.cluster

    with ending_well():
        if look:
            click.echo(story_of(recovery.look(config), config.name))
            return
        made = recovery.recover(config, confirmed)
    if made is None:
        refuse(
            NodeExit.CONFIG,
            [
                "nothing was done: it takes the cluster's name"
                + (f", and {typed!r} was typed" if typed else "")
                + f"; --confirm {config.cluster}"
            ],
        )
    report(made, config.name)


@node.command(
    "recover-admin",
    help="""Let an admin in again when every admin's secret is lost.

It writes the hash of a secret into the node's folder, and the node, which may run or not, shows the
others. When a MAJORITY of the voters show the same, the secret makes access tokens, for an hour and
nothing else: one disk alone opens nothing. Do it on as many machines.

\b
Examples:
  raftsched node recover-admin --config node.toml > FILE
  raftsched node recover-admin --config node.toml --secret-file FILE
  raftsched token create root2 --role admin -A --token-file FILE""",
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The secret that another node has printed. [a new one is printed]",
)
@config_options
def recover_admin(secret_file: Path | None, file: Path | None, **flags: str | None) -> None:
    config = read_config(file, flags).config
    from .node import admin_recovery

    try:
        secret = secret_file.read_text().strip() if secret_file else admin_recovery.new_secret()
        if not admin_recovery.is_secret(secret):
            refuse(NodeExit.CONFIG, [f"{secret_file} holds no secret of recover-admin"])
        if not (Path(config.folder) / "node.json").exists():
            why = f"{config.folder} is no folder of a node; name its file by --config"
            refuse(NodeExit.CONFIG, [why])
        written = admin_recovery.write(Path(config.folder), secret)
    except (OSError, UnicodeDecodeError) as error:
        refuse(NodeExit.CONFIG, [f"the secret cannot be kept: {error}"])
    if secret_file is None:
        click.echo(secret)
    click.echo(
        f"{written} has its hash, for an hour. Do the same on a majority of the nodes with "
        "--secret-file; then: raftsched token create NAME --role admin -A --token-file FILE",
        err=True,
    )


@contextlib.contextmanager
def ending_well() -> Iterator[None]:
    """What cannot be done ends with its line and its code."""
    try:
        yield
    except ConfigWrong as error:
        refuse(NodeExit.CONFIG, error.faults)
    except NodeCannotStart as error:
        refuse(error.code, [str(error)])


def story_of(standing: Standing, name: str) -> str:
    alive = ", ".join(standing.alive) or "none of the others answers"
    return (
        f"{name}: term {standing.term}, index {standing.last_index}, revision "
        f"{standing.revision}\nvoters: {', '.join(standing.voters)}; alive: {alive}"
    )


def report(made: Renewed, name: str) -> None:
    click.echo(
        f"a new cluster begins on {name} with revision {made.revision}: {made.jobs:,} jobs, "
        f"{made.live_runs:,} runs under way. Start it now"
        + (f"; then {', '.join(made.others)}, each with an empty folder" if made.others else ""),
        err=True,
    )


@click.group()
def main() -> None:
    """The server's own commands, without the client's."""


main.add_command(node)

if __name__ == "__main__":
    main()
