"""`raftsched worker`: the processes that carry out runs."""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from .. import messages as m
from ..exits import Trouble, wrong_use
from ..input.modules import find
from ..input.spec import pairs
from ..lazy import ExampleGroup
from ..names import WORKER
from ..options import command
from ..session import Invocation, credentials

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...worker import executors
    from ...worker.worker import Worker

SECRETS_MAX = 4_096  # Of a file, in characters.
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Size(click.ParamType[int]):
    """A number of bytes, such as 512M or 2GiB."""

    name = "SIZE"

    def convert(self, value: str | int, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9]{1,15})([KMG]?)(?:iB|B)?", value.strip())
        if found is None:
            self.fail(f"'{value}' is no size; write 512M or 2G", param, ctx)
        return int(found[1]) * UNITS[found[2]]


SIZE = Size()


@click.group(
    cls=ExampleGroup,
    examples=("raftsched worker run shop.jobs:worker", "raftsched worker list"),
)
def worker() -> None:
    """Workers: processes outside the cluster that pull runs and carry them out."""


@command(worker, "list", "raftsched worker list -o wide", reads=False, lists=True)
@click.option("--all-namespaces", "-A", is_flag=True, help="Workers of all namespaces.")
@click.option(
    "--filter", "text", default="", help="Only what fits, such as 'queue=mail AND draining=false'."
)
def list_(session: Invocation, all_namespaces: bool, text: str) -> None:
    """List the workers that are there, with how busy they are."""
    namespace = "" if all_namespaces else session.namespace
    request = m.worker_pb2.ListWorkersRequest(namespace=namespace, filter=text)
    session.show_list(request, m.worker_pb2.ListWorkersResponse, "workers", "list workers")


@command(
    worker, "drain", "raftsched worker drain mailer-1 --reason 'host goes down'", writes=True
)  # fmt: skip
@click.argument("name", type=WORKER, metavar="WORKER")
@click.option("--reason", default="", help="Why, for people.")
def drain(session: Invocation, name: str, reason: str) -> None:
    """Give a worker no more runs; those that it has go on."""
    request = session.write(m.worker_pb2.DrainWorkerRequest(worker=name, reason=reason))
    answer = session.ask(request, m.worker_pb2.DrainWorkerResponse, f"drain worker {name}")
    session.done(answer, f"Worker {name} takes no more runs; it still works on {answer.leased}.")


@command(
    worker, "run",
    "raftsched worker run shop.jobs:worker",
    "raftsched worker run jobs --chdir /srv/shop --context prod",
    "raftsched worker run --executor http --executor shell --slots 20",
)  # fmt: skip
@click.argument("where", default="", metavar="[MODULE[:NAME]]")
@click.option(
    "--chdir", default=".", metavar="DIR", help="The folder in which the module is.  [here]"
)
@click.option(
    "--executor",
    "executors",
    multiple=True,
    type=click.Choice(("http", "grpc", "shell")),
    help="Without a module: jobs that it carries out; can be repeated.",
)
@click.option(
    "--queue", "queues", multiple=True, help="A queue whose runs it takes; can be repeated.  [all]"
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="A label that jobs may ask for; can be repeated.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="The maximum of runs that it has at once.",
)
@click.option(
    "--isolation", type=click.Choice(("auto", "none", "bubblewrap", "systemd")), default="auto",
    help="What keeps shell commands apart.  [auto: the best that works here]",
)  # fmt: skip
@click.option("--run-as", default="", metavar="USER", help="Whom shell commands run as; as root.")
@click.option("--memory", type=SIZE, help="Of each process of a shell command, such as 512M.")
@click.option("--processes", type=click.IntRange(min=1), help="Of a shell command, at once.")
@click.option(
    "--writable", multiple=True, metavar="DIR",
    help="All that shell commands may change, by bubblewrap; can be repeated.",
)  # fmt: skip
@click.option(
    "--allow-address", "allow", multiple=True, metavar="NET",
    help="Called by http jobs though it is loopback or link-local; can be repeated.",
)  # fmt: skip
@click.option(
    "--deny-address", "deny", multiple=True, metavar="NET",
    help="Not called by http jobs, such as private or 10.0.0.0/8; can be repeated.",
)  # fmt: skip
@click.option(
    "--sign-with", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
    help="Secrets to sign the calls of http jobs, a line each, the new one first.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="It logs only what is wrong.")
def run(
    session: Invocation,
    where: str,
    chdir: str,
    executors: tuple[str, ...],
    quiet: bool,
    **given: Any,
) -> None:
    """Run a worker until SIGTERM or Ctrl-C: an object of a Python module, or ready-made executors.

    A module's worker talks to the nodes that it names itself, unless this command or its context
    names others. The first signal drains it, the second stops it at once.
    """
    if bool(where) == bool(executors):
        raise wrong_use(
            "a worker is a module or executors",
            "",
            "raftsched worker run MODULE, or --executor http",
        )
    if "shell" in executors:
        from ...worker.executors.isolation import HIDDEN

        # Others' commands may run as its user before it serves, and while it ends.
        HIDDEN.hide()
        click.get_current_context().call_on_close(HIDDEN.show)
    found = ready_made(session, executors, **given) if executors else named(where, chdir)
    log_to_stderr(quiet=quiet)
    if where and session.values["endpoints"].origin != "default":
        found.connect_to(session.endpoints, **credentials(session.values))
    if not found.handlers:
        raise Trouble(f"worker {where} has no handlers", "", "@worker.handler() on a function")
    if not quiet:
        session.say(f"Handlers: {', '.join(found.handlers)}. Ctrl-C drains, twice stops.")
    from ...worker.executors import CannotIsolate
    from ..refused import refusals

    try:
        with refusals(session, "run this worker"):
            found.run()
    except CannotIsolate as wrong:
        raise Trouble("shell commands cannot be run so", str(wrong), "") from None


def log_to_stderr(*, quiet: bool) -> None:
    """What a worker logs, with the span in which it does."""
    from ...sdk.tracing import InSpan

    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(InSpan("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[log], level=logging.WARNING if quiet else logging.INFO)


def ready_made(
    session: Invocation, names: tuple[str, ...], queues: tuple[str, ...], labels: tuple[str, ...],
    slots: int, allow: tuple[str, ...], deny: tuple[str, ...], sign_with: str | None, **shell: Any,
) -> Worker:  # fmt: skip
    from ...worker import executors
    from ...worker.worker import Worker

    kinds: dict[str, Callable[[], executors.Executor]] = {
        "http": lambda: executors.HttpExecutor(
            allow=allow, deny=deny, secrets=lines_of(sign_with) if sign_with else ()
        ),
        "grpc": executors.GrpcExecutor,
        "shell": lambda: shell_executor(**shell),
    }
    try:
        made = [kinds[name]() for name in dict.fromkeys(names)]
    except ImportError as wrong:
        raise Trouble(
            "an executor is not installed", str(wrong), "pip install 'raftsched[http]'"
        ) from wrong
    except ValueError as wrong:
        raise wrong_use("the settings of an executor are wrong", str(wrong)) from wrong
    return Worker(
        session.endpoints, queues=queues, namespaces=[session.namespace], slots=slots,
        labels=pairs("--label", labels), executors=made, **credentials(session.values),
    )  # fmt: skip


def shell_executor(
    isolation: str, run_as: str, memory: int | None, processes: int | None,
    writable: tuple[str, ...],
) -> executors.Executor:  # fmt: skip
    from ...worker.executors import ShellExecutor

    return ShellExecutor(
        isolation=isolation, user=run_as, memory=memory, processes=processes,
        writable=writable or None,
    )  # fmt: skip


def lines_of(file: str) -> list[str]:
    with open(file) as secrets:
        return secrets.read(SECRETS_MAX).split()


def named(where: str, folder: str) -> Worker:
    """The worker that the words mean."""
    from ...worker.worker import Worker

    return find(where, folder, Worker, "raftsched worker run")
