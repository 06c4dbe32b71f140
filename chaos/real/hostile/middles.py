"""Flows in large graphs: begun in the middle, ended in bulk, rewired and looked at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from ....proto.v1 import common_pb2, flow_pb2, job_pb2, run_pb2
from .attack import attack
from .field import HostileCaller
from .hand import succeed, working

PIECE = 200
WIDE, LAYERS = 40, 15
ENDS_S = 20.0
GONE_S = 5.0


def knot(field: HostileCaller, wide: int = WIDE, layers: int = LAYERS) -> Iterator[job_pb2.Job]:
    """Layers of jobs, each after all of the layer before."""
    yield field.job("k")
    for layer in range(layers):
        after = [f"k-{layer - 1}-{n}" for n in range(wide)] if layer else ["k"]
        for number in range(wide):
            yield field.job(f"k-{layer}-{number}", after=after)


async def flows(field: HostileCaller, words: str) -> int:
    """How many flows are in a state."""
    request = flow_pb2.ListFlowsRequest(namespace=field.namespace, filter=words, page_size=1_000)
    found = await field.need(request, flow_pb2.ListFlowsResponse, role="viewer")
    return len(found.flows)


@attack("-", 12)
async def middle_of_a_knot(field: HostileCaller) -> None:
    """A flow from the middle of 15 layers of 40 jobs, each after all before; ended within 20 s."""
    await field.load(knot(field), piece=PIECE)
    async with working(field, succeed):
        began = time.monotonic()
        await field.trigger("k-2-7")

        async def ended() -> bool:
            return bool(await flows(field, "state=SUCCEEDED"))

        await field.wait_until(ended, ENDS_S, "a flow from the middle has not ended")
        field.found.figures["seconds"] = round(time.monotonic() - began, 1)


@attack("-", 8)
async def many_middles(field: HostileCaller) -> None:
    """Flows begin with each of 400 jobs in the middle of a knot at once, and a worker ends them."""
    await field.load(knot(field), piece=PIECE)

    async def one(number: int) -> None:
        await field.trigger(f"k-{2 + number // WIDE}-{number % WIDE}")

    async with working(field, succeed) as hands:
        await field.many(400, one, at_once=20)
        await field.rest()
        field.found.figures["leases"] = hands[0].taken


@attack("-", 8)
async def ends_in_bulk(field: HostileCaller) -> None:
    """200 runs that each have 64 jobs behind them are ended by calls for all of them; then a job of
    the same tenant is deleted, and gone within 5 s."""
    await field.load([*knot(field, wide=64, layers=2), field.job("gone")], piece=PIECE)
    await field.many(200, lambda n: field.trigger(f"k-0-{n % 64}"), at_once=20)
    request = run_pb2.ChangeRunsRequest(
        namespace=field.namespace, change=run_pb2.ChangeRunsRequest.CHANGE_TERMINATE
    )
    steps = changed = 0
    field.until += 8
    while field.goes_on:
        reply = await field.ask(request)
        if not reply.ok:
            await asyncio.sleep(0.05)
            continue
        answer = common_pb2.BulkChange.FromString(reply.data)
        steps, changed = steps + 1, changed + answer.changed
        request.page_token = answer.next_page_token
        if not answer.next_page_token:
            break
    field.found.figures["steps"], field.found.figures["ended"] = steps, changed
    await field.ask(job_pb2.DeleteJobRequest(namespace=field.namespace, job="gone"))

    async def gone() -> bool:
        again = job_pb2.CreateJobRequest(job=field.job("gone"))
        return (await field.ask(again)).ok

    seconds = await field.wait_until(gone, GONE_S, "a job that was deleted has its name still")
    field.found.figures["gone_s"] = round(seconds, 1)


@attack("-", 8)
async def knot_rewired(field: HostileCaller) -> None:
    """Jobs in the middle of a knot lose and get upstream jobs, while 300 flows go through it."""
    await field.load(knot(field), piece=PIECE)

    async def change(number: int) -> None:
        layer, place = 3 + number % 9, number % WIDE
        left = [n for n in range(WIDE) if number % 3 or n != (place + 1) % WIDE]
        job = field.job(f"k-{layer}-{place}", after=[f"k-{layer - 1}-{n}" for n in left])
        await field.ask(job_pb2.UpdateJobRequest(job=job))

    async with working(field, succeed):
        await field.many(300, lambda n: field.trigger(f"k-{n % 5}-{n % WIDE}"), at_once=20)
        await field.many(2_000, change, at_once=20)


@attack("-", 6)
async def flows_looked_at(field: HostileCaller) -> None:
    """A viewer lists and explains flows of 600 steps with 40 upstream jobs each, at all nodes."""
    await field.load(knot(field), piece=PIECE)
    space = field.namespace
    for number in range(20):
        await field.trigger(f"k-0-{number}")

    async def ask(number: int) -> None:
        node = number % len(field.fronts)
        words = f"job=k-{number % LAYERS}-*"
        for request in (
            flow_pb2.ListFlowsRequest(namespace=space, filter=words),
            job_pb2.ExplainJobRequest(namespace=space, job=f"k-{number % LAYERS}-1"),
            flow_pb2.GetGraphRequest(namespace=space, job=f"k-{number % LAYERS}-1"),
        ):
            await field.ask(request, role="viewer", node=node)

    async with working(field, succeed):
        await field.many(2_000, ask, at_once=10)
