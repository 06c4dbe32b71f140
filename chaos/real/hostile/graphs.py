"""Jobs that depend on each other: long chains, wide fans, knots."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ....proto.v1 import flow_pb2, job_pb2
from .attack import attack
from .field import HostileCaller
from .hand import fail, succeed, working

PIECE = 200
CHAIN, LONG_CHAIN, FAN = 1_100, 5_000, 25_000
CHAIN_IMPORT_S, CHAIN_END_S, FAN_S = 5.0, 10.0, 10.0


def chain(field: HostileCaller, count: int, name: str = "link") -> Iterator[job_pb2.Job]:
    for number in range(count):
        after = [f"{name}-{number - 1}"] if number else []
        yield field.job(f"{name}-{number}", after=after)


def fan(field: HostileCaller, count: int) -> Iterator[job_pb2.Job]:
    yield field.job("root")
    for number in range(count):
        yield field.job(f"leaf-{number}", after=["root"])


@attack("P8", 6)
async def chain_import(field: HostileCaller) -> None:
    """A chain of 5,000 jobs is imported in pieces of 200, which takes at most 5 s."""
    began = time.monotonic()
    refused = await field.load(chain(field, LONG_CHAIN), piece=PIECE)
    took = field.found.figures["seconds"] = round(time.monotonic() - began, 1)
    limited = [words for words in refused if "LIMIT" in words or "DEPENDENCY" in words]
    if refused and not limited:
        field.wrong(f"{len(refused)} links were refused: {refused[0]}")
    if took > CHAIN_IMPORT_S * field.brief.slack:
        field.wrong(f"the import took {took:.1f} s, and {CHAIN_IMPORT_S:.0f} are allowed")


async def play_chain(field: HostileCaller, count: int) -> None:
    if refused := await field.load(chain(field, count), piece=1_000):
        field.found.figures["refused"] = len(refused)
        if "LIMIT" not in refused[0]:
            field.wrong(f"{len(refused)} links were refused: {refused[0]}")
        return
    async with working(field, fail):
        await field.trigger("link-0")
        began = time.monotonic()

        async def ended() -> bool:
            root = await field.status("link-0")
            usage = await field.usage()
            return bool(root.failed) and not usage.live_runs

        await field.wait_until(ended, CHAIN_END_S, "the root's failure is not passed on")

        async def flows_ended() -> bool:
            request = flow_pb2.ListFlowsRequest(
                namespace=field.namespace, filter="state=LIVE", page_size=1
            )
            reply = await field.ask(request, role="viewer")
            return reply.ok and not flow_pb2.ListFlowsResponse.FromString(reply.data).flows

        await field.wait_until(flows_ended, CHAIN_END_S, "the flow of the chain is not at its end")
        field.found.figures["seconds"] = round(time.monotonic() - began, 1)


@attack("P2, A1", 5)
async def chain_root_fails(field: HostileCaller) -> None:
    """The root of a chain of 1,100 jobs fails for good; all are given up within 10 s."""
    await play_chain(field, CHAIN)


@attack("P2, A1", 8)
async def long_chain_root_fails(field: HostileCaller) -> None:
    """The root of a chain of 5,000 jobs fails for good; all are given up within 10 s."""
    await play_chain(field, LONG_CHAIN)


async def play_fan(field: HostileCaller, *, well: bool) -> None:
    refused = await field.load(fan(field, FAN))
    if refused:
        field.found.figures["refused"] = len(refused)
        if "LIMIT" not in refused[0]:
            field.wrong(f"{len(refused)} dependents were refused: {refused[0]}")
    there = FAN - len(refused)
    async with working(field, succeed if well else fail) as hands:
        began = time.monotonic()
        await field.trigger("root")

        async def begun() -> bool:
            root = await field.status("root")
            if not well:
                return bool(root.failed)
            usage = await field.usage()
            return bool(root.succeeded) and usage.live_runs + hands[0].taken > there

        await field.wait_until(begun, FAN_S, f"{there} dependents are not begun or given up")
        field.found.figures["seconds"] = round(time.monotonic() - began, 1)


@attack("P2, A2", 9)
async def fan_succeeds(field: HostileCaller) -> None:
    """A job with 25,000 dependents succeeds; they have begun within 10 s."""
    await play_fan(field, well=True)


@attack("P2, A2", 9)
async def fan_fails(field: HostileCaller) -> None:
    """A job with 25,000 dependents fails for good."""
    await play_fan(field, well=False)


@attack("-", 6)
async def knot(field: HostileCaller) -> None:
    """Layers of 60 jobs, each after all of the layer before, and attempts to close a circle."""
    jobs = [field.job("k")]
    for layer in range(20):
        for number in range(60):
            after = [f"k-{layer - 1}-{n}" for n in range(60)] if layer else ["k"]
            jobs.append(field.job(f"k-{layer}-{number}", after=after))
    await field.load(jobs, piece=PIECE)
    circle = field.job("k", after=[f"k-19-{n}" for n in range(60)])
    for _ in range(20):
        if (await field.ask(job_pb2.UpdateJobRequest(job=circle))).ok:
            field.wrong("a circle of dependencies was taken")
    async with working(field):
        await field.trigger("k")
        for _ in range(20):
            if not field.goes_on:
                break
            request = flow_pb2.GetGraphRequest(namespace=field.namespace, job="k-10-1")
            await field.ask(request, role="viewer")


@attack("-", 5)
async def rewired_chain(field: HostileCaller) -> None:
    """While a chain of 600 runs, its links are taken out, put in elsewhere and deleted."""
    await field.load(chain(field, 600), piece=600)
    async with working(field):
        for _ in range(20):
            await field.trigger("link-0")
        for number in range(599, 0, -3):
            if not field.goes_on:
                return
            job = field.job(f"link-{number}", after=["link-0"])
            await field.ask(job_pb2.UpdateJobRequest(job=job))
            gone = job_pb2.DeleteJobRequest(namespace=field.namespace, job=f"link-{number - 1}")
            await field.ask(gone)
