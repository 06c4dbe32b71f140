"""A cluster with what a company has: jobs of every kind, some that fail, flows, a herd ahead,
tokens, settings, and in the end a node that is dead. Pictures of the pages need a full house."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from raftsched.client import (
    After,
    Client,
    Context,
    Overlap,
    Retry,
    Timeouts,
    Worker,
    after_end,
    cron,
    every,
    job_of,
    once,
)
from raftsched.client.executors import GrpcExecutor, HttpExecutor, ShellExecutor
from raftsched.client.testing import LocalCluster
from raftsched.cluster.node.secret_keys import new_key
from raftsched.proto.v1 import flow_pb2, identity_pb2, job_pb2, options_pb2, run_pb2

from .browser import eventually

HERD, HERD_IN = 6_000, timedelta(minutes=24)
FAULTS = (
    TimeoutError("the upstream did not answer within 5 s"),
    ConnectionError("connection refused by payments-2:8443"),
    ValueError("invoice 20431 has no address"),
)
READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Company:
    """What the pages look at."""

    cluster: LocalCluster
    token: str
    # What stands for a name in the path of a page.
    names: dict[str, str]

    def client(self) -> Client:
        return self.cluster.client(token=self.token)


def handlers(worker: Worker, pace: float) -> Worker:
    """Work that takes its time, fails at times, warns, and reports how far it is."""
    dice = random.Random(7)

    @worker.handler("work")
    def work(context: Context, seconds: float = 0.2) -> str:
        context.log.info("%s begins", context.job)
        time.sleep(seconds * pace * dice.uniform(0.7, 1.3))
        context.log.info("done: 1,204 rows")
        return "1,204 rows"

    @worker.handler("flaky")
    def flaky(share: float = 0.25) -> str:
        time.sleep(0.1 * pace)
        if dice.random() < share:
            raise dice.choice(FAULTS)
        return "ok"

    @worker.handler("broken")
    def broken(fault: int = 0) -> None:
        raise FAULTS[fault]

    @worker.handler("warns")
    def warns(context: Context) -> None:
        context.warn("3 of 900 addresses bounced")

    @worker.handler("long")
    def long(context: Context, steps: int = 400) -> None:
        for step in range(steps):
            context.progress(step, steps, f"table {step // 40 + 1} of {steps // 40}")
            context.log.info("copied block %d", step)
            if context.wait_cancelled_sync(0.5):
                return

    return worker


class Neighbour(BaseHTTPRequestHandler):
    """Whom jobs over HTTP call."""

    def do_POST(self) -> None:
        body = b'{"accepted": true}' if self.path == "/ok" else b'{"error": "maintenance"}'
        self.send_response(200 if self.path == "/ok" else 503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def neighbour() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Neighbour)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def at_work(worker: Worker) -> Iterator[None]:
    """On a thread; it shows its token, which LocalCluster.work does not."""
    thread = Thread(target=lambda: asyncio.run(worker.serve()))
    thread.start()
    try:
        yield
    finally:
        worker.stop(now=True)
        thread.join()


@contextmanager
def company(folder: Path, seconds: float) -> Iterator[Company]:
    """It has worked for so long when it is shown."""
    key = folder / "keys"
    key.write_text(f"{new_key()}\n")
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(3, settings={"secrets-key-file": str(key)}))
        with cluster.client() as stranger:
            token = stranger.access.create_token("root", "admin", namespace="").secret
        client = stack.enter_context(cluster.client(token=token))
        settings(client)
        for host, pace in (
            ("berlin-1", 1.0),
            ("berlin-2", 1.0),
            ("lisbon-1", 1.1),
            ("oslo-1", 6.0),
        ):
            made = Worker(
                cluster.endpoints, labels={"host": host, "gpu": str(host == "oslo-1").lower()},
                slots=8, token=token, queues=["default", "billing", "mail", "reports"],
                executors=[HttpExecutor(allow=["loopback"]), ShellExecutor(), GrpcExecutor()],
            )  # fmt: skip
            stack.enter_context(at_work(handlers(made, pace)))
        names = furnish(client, stack.enter_context(neighbour()), cluster.endpoints[0])
        time.sleep(seconds)
        leader = client.cluster.status().leader
        dead = next(name for name in cluster.names if name != leader)
        cluster.kill(dead)
        eventually(lambda: any(not one.reachable for one in client.cluster.status().nodes),
                   READY_S, f"the death of {dead} is seen")  # fmt: skip
        yield Company(cluster, token, names)


def settings(client: Client) -> None:
    client.namespaces.create("team-blue", description="Ledger and taxes", jobs=500, live_runs=2_000)
    client.namespaces.create("sandbox", description="Try things here", jobs=50, calls_per_second=20)
    client.calendars.create("holidays", ["12-25", "12-26", "01-01"], zone="Europe/Berlin",
                            description="Days off, Germany")  # fmt: skip
    client.calendars.create("weekends", ["saturday", "sunday"])
    client.alerts.put("too-many-failures", dead_letters_above=3)
    client.alerts.put("mail-workers", workers_below=("mail", 1))
    client.alerts.put("one-more-loss-stops-all", no_margin=True, namespace="")
    client.access.create_token("deploy", "editor", expires=datetime.now(UTC) + timedelta(days=30))
    client.access.create_token("grafana", "viewer", namespace="")
    client.secrets.put("payments-api-key", "4f0c8d", labels={"team": "billing"})
    client.secrets.put("smtp-password", "b77e01")
    client.queues.update("billing", concurrency=6)
    client.queues.update("mail", rate=20, burst=40)
    rule = identity_pb2.BindingRule(
        claims=[identity_pb2.ClaimSelector(claim=["groups"], values=["platform"])],
        role=options_pb2.ROLE_EDITOR, namespace="team-blue",
    )  # fmt: skip
    made = identity_pb2.IdentityProvider(
        name="company", rules=[rule],
        jwt=identity_pb2.TokenIssuer(issuer="https://id.example.com", audiences=["raftsched"]),
    )  # fmt: skip
    client.call(identity_pb2.PutIdentityProviderRequest(identity_provider=made))


def furnish(client: Client, http: str, node: str) -> dict[str, str]:
    make = client.jobs.create
    billing: dict[str, Any] = {"labels": {"team": "billing"}, "owner": "anna@example.com"}
    make("charge-cards", handler="work", payload={"seconds": 0.3}, schedule=every(2),
         queue="billing", priority="high", overlap="allow", description="Charges what is due",
         **billing)  # fmt: skip
    make("dunning-letters", handler="flaky", schedule=every(3), queue="billing", retry=1,
         on_failure="page-somebody", **billing)  # fmt: skip
    make("exchange-rates", http=f"{http}/ok", schedule=every(4), labels={"team": "billing"})
    make("tax-office", http=f"{http}/bad", schedule=every(20), retry=Retry(attempts=5, first=10),
         labels={"team": "ledger"})  # fmt: skip
    make("rotate-logs", shell=["sh", "-c", "echo rotated 12 files; sleep 0.2"], schedule=every(5),
         labels={"team": "platform"})  # fmt: skip
    make("ping-cluster", schedule=every(10), labels={"team": "platform"}, retry=1,
         grpc=job_pb2.GrpcAction(target=node, method="grpc.health.v1.Health/Check"))  # fmt: skip
    make("nightly-report", handler="work", schedule=cron("30 2 * * *", zone="Europe/Berlin"),
         queue="reports", owner="ben@example.com", description="Figures of the day")  # fmt: skip
    client.jobs.update("nightly-report", schedule=cron("45 2 * * *", zone="Europe/Berlin"))
    make("month-end", handler="work", schedule=cron("0 6 L * *", zone="America/New_York"),
         queue="reports", exclude_calendars=["holidays"])  # fmt: skip
    make("newsletter", handler="warns", schedule=every(6), queue="mail", labels={"team": "growth"})
    make("mail-queue", handler="work", payload={"seconds": 0.1}, schedule=every(1), queue="mail",
         overlap="allow", labels={"team": "growth"})  # fmt: skip
    make("resize-images", handler="work", schedule=after_end(3), payload={"seconds": 0.6})
    make("migrate-archive", handler="long", timeouts=Timeouts(attempt=3_600))
    make("import-orders", handler="flaky", payload={"share": 0.4}, schedule=every(4),
         retry=Retry(attempts=4, first=5))  # fmt: skip
    make(
        "train-model", handler="train", worker_labels={"gpu": "a100"}, schedule=cron("0 */2 * * *")
    )
    make("welcome-mail", handler="work", queue="mail", schedule=once(
        datetime.now(UTC) + timedelta(hours=3)))  # fmt: skip
    make("stock-take", handler="work", schedule=every(60), misfire="skip")
    make("one-at-a-time", handler="work", payload={"seconds": 3.0}, schedule=every(2),
         overlap=Overlap("queue", limit=5))  # fmt: skip
    make("page-somebody", http=f"{http}/ok", priority="high", labels={"team": "platform"})
    make(
        "send-invoices", handler="broken", payload={"fault": 2}, retry=1, queue="billing", **billing
    )
    make("sync-partners", handler="broken", payload={"fault": 1}, retry=1)
    flow(client)
    client.jobs.pause("stock-take", reason="until the new warehouse is open")
    return begun(client) | {"queue": "billing", "job": "charge-cards"}


def flow(client: Client) -> None:
    """Orders on their way into a report: two that go side by side, one that fails at times."""
    make = client.jobs.create
    etl: dict[str, Any] = {"labels": {"team": "data"}, "queue": "reports"}
    make("extract", handler="work", schedule=every(15), payload={"seconds": 1.0}, **etl)
    make("clean", handler="work", after="extract", payload={"seconds": 0.8}, **etl)
    make("enrich", handler="flaky", payload={"share": 0.3}, after="extract", retry=1, **etl)
    make("load", handler="work", after=["clean", "enrich"], payload={"seconds": 1.5}, **etl)
    make("publish", handler="work", after="load", **etl)
    make("notify", handler="work", after=After({"load": "any_end"}), **etl)
    at = datetime.now(UTC) + HERD_IN
    herd = [
        job_of(f"statement-{number:04}", handler="work", queue="mail", labels={"team": "growth"},
               schedule=cron(f"{at.minute} {at.hour} * * *"))
        for number in range(HERD)
    ]  # fmt: skip
    client.jobs.import_(herd)


def begun(client: Client) -> dict[str, str]:
    """What was begun by hand."""
    jobs = client.jobs
    jobs.trigger("migrate-archive")
    jobs.trigger("train-model")
    for name in ("send-invoices", "sync-partners"):
        for _ in range(4):
            jobs.trigger(name)
    good, report = jobs.trigger("charge-cards"), jobs.trigger("nightly-report")
    eventually(lambda: report.refresh().state == "SUCCEEDED", READY_S, "a run succeeded")
    eventually(lambda: good.refresh().state == "SUCCEEDED", READY_S, "a run succeeded")
    asked = flow_pb2.ListFlowsRequest(namespace="default")
    eventually(lambda: len(client.call(asked).flows) > 1, READY_S, "flows began")
    return {"run": good.id, "flow": client.call(asked).flows[-1].id}


def found(client: Client) -> dict[str, str]:
    """Runs that are worth a picture, as they are now."""
    wanted = {
        "failed": "state=FAILED AND job=import-orders", "retrying": "state=RETRYING",
        "waiting": "state=PENDING AND job=train-model", "running": "job=migrate-archive",
    }  # fmt: skip
    runs = {}
    for word, filter in wanted.items():
        answer = client.call(
            run_pb2.ListRunsRequest(namespace="default", filter=filter, page_size=1)
        )
        if answer.runs:
            runs[word] = answer.runs[0].id
    return runs
