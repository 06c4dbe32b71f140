"""`raftsched worker`: the processes that carry out runs."""

from __future__ import annotations

import click

from . import messages as m
from .lazy import ExampleGroup
from .names import WORKER
from .options import command
from .session import Session


@click.group(cls=ExampleGroup, examples=("raftsched worker list",))
def worker() -> None:
    """Workers: processes outside the cluster that pull runs and carry them out."""


@command(worker, "list", "raftsched worker list -o wide", reads=False, lists=True)
@click.option("--all-namespaces", "-A", is_flag=True, help="Not only those of one namespace.")
@click.option("--filter", "text", default="", help="As the API has it.")
def list_(session: Session, all_namespaces: bool, text: str) -> None:
    """List the workers that are there, with how busy they are."""
    namespace = "" if all_namespaces else session.namespace
    request = m.worker_pb2.ListWorkersRequest(namespace=namespace, filter=text)
    session.show_list(request, m.worker_pb2.ListWorkersResponse, "workers", "list workers")


@command(
    worker, "drain", "raftsched worker drain mailer-1 --reason 'host goes down'", writes=True
)  # fmt: skip
@click.argument("name", type=WORKER, metavar="WORKER")
@click.option("--reason", default="", help="For people.")
def drain(session: Session, name: str, reason: str) -> None:
    """Give a worker no more runs; those that it has go on."""
    request = session.write(m.worker_pb2.DrainWorkerRequest(worker=name, reason=reason))
    told = session.ask(request, m.worker_pb2.DrainWorkerResponse, f"drain worker {name}")
    session.done(told, f"Worker {name} takes no more runs; it still works on {told.leased}.")
