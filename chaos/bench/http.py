"""The gateway under load: what HTTP costs beside the cluster, and what a flood of it does to that.

The callers are in this process and speak plain HTTP/1.1 over connections that stay, each waiting
for its answer. They take a good part of the cores that gateway and nodes need as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...client import AsyncClient, RaftschedError, Worker, cron
from ...cluster.local.nodes import NodeProcesses
from ...cluster.local.ports import LOOPBACK, free_ports
from ...cluster.local.process import PROGRAM_OF_CLIENT, Process, ProcessFailed
from ...proto.v1 import access_pb2, options_pb2
from ..percentile import percentile

START_S = 20.0
LOOK_S = 0.01
IDLE_S = 5.0
ALONE_S = 3.0
# What a flood may take beyond its time, to start and to end.
FLOOD_MORE_S = 30.0
SETTLE_S = 15.0
Figures = dict[str, float | int]


@dataclass(frozen=True, kw_only=True)
class Http:
    """What is asked for."""

    clients: int = 32
    seconds: float = 10.0
    watchers: int = 500
    events: float = 200.0
    flood_s: float = 60.0


class HttpConnection:
    """One connection."""

    def __init__(self, port: int, token: str = "") -> None:
        self._port = port
        shown = f"Authorization: Bearer {token}\r\n" if token else ""
        takes = "Accept: application/json, text/event-stream"
        self._headers = f" HTTP/1.1\r\nHost: {LOOPBACK}\r\n{takes}\r\n{shown}"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, verb: str, path: str, body: object = None) -> int:
        """The status of the answer, which is read whole."""
        reader = await self.send(verb, path, body)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(one[16:]) for one in lines if one.startswith(b"content-length: "))
        await reader.readexactly(length)
        if b"connection: close" in lines:
            self.close()
        return int(head[9:12])

    async def send(self, verb: str, path: str, body: object = None) -> asyncio.StreamReader:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(LOOPBACK, self._port)
        sent = b"" if body is None else json.dumps(body).encode()
        of_body = f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n"
        head = f"{verb} {path}{self._headers}{of_body if sent else ''}\r\n"
        self._writer.write(head.encode() + sent)
        return self._reader

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


@asynccontextmanager
async def gateway(folder: Path, nodes: NodeProcesses) -> AsyncIterator[tuple[Process, int, float]]:
    """One before all nodes, its port, and the seconds until it answered."""
    [port] = free_ports(1)
    words = ["gateway", "--quiet", "--listen", f"{LOOPBACK}:{port}", "--server", nodes.endpoints]
    process = Process("gateway", words, folder / "gateway.log", {"RAFTSCHED_CONFIG": os.devnull},
                      PROGRAM_OF_CLIENT)  # fmt: skip
    began = time.monotonic()
    process.start()
    try:
        while True:
            with suppress(OSError):
                if await HttpConnection(port).ask("GET", "/v1/jobs/none/status"):
                    break
            if time.monotonic() - began > START_S or not process.alive:
                raise ProcessFailed(f"the gateway does not answer:\n{process.tail()}")
            await asyncio.sleep(LOOK_S)
        yield process, port, time.monotonic() - began
    finally:
        await asyncio.to_thread(process.stop)


async def run(folder: Path, nodes: NodeProcesses, http: Http) -> Figures:
    async with AsyncClient(nodes.endpoints) as first:
        asked = access_pb2.CreateAccessTokenRequest()
        asked.access_token.name, asked.access_token.role = "bench", options_pb2.ROLE_ADMIN
        token = (await first.call(asked)).secret
    async with (
        AsyncClient(nodes.endpoints, token=token, insecure=True) as client,
        gateway(folder, nodes) as (process, port, start_s),
    ):
        found: Figures = {"start_s": round(start_s, 2)}
        found["idle_core_share"] = round(await idle(process), 4)
        found["rss_mb_idle"] = process.rss_mb()
        calls = HttpCalls(port, token)
        await calls.many("POST", calls.create, 4, 1.0)
        found |= figures("post_alone", await calls.many("POST", calls.create, 1, ALONE_S))
        found |= figures("get_alone", await calls.many("GET", calls.read, 1, ALONE_S))
        for name, verb, one in (("post", "POST", calls.create), ("get", "GET", calls.read)):
            before = process.cpu_s(), time.process_time()
            took = await calls.many(verb, one, http.clients, http.seconds)
            found |= figures(name, took)
            found[f"{name}_per_s"] = round(len(took) / http.seconds)
            found[f"{name}_gateway_us"] = round((process.cpu_s() - before[0]) / len(took) * 1e6)
            found[f"{name}_callers_us"] = round((time.process_time() - before[1]) / len(took) * 1e6)
        if http.watchers:
            found |= await watched(client, process, port, token, http)
        if http.flood_s:
            flood = Flood(folder, port, http.flood_s)
            found |= await flooded(client, nodes, token, flood)
        found["rss_mb"] = process.rss_mb(peak=True)
    return found


async def idle(process: Process) -> float:
    """The share of a core that it takes with nothing to do."""
    before = process.cpu_s()
    await asyncio.sleep(IDLE_S)
    return (process.cpu_s() - before) / IDLE_S


def figures(name: str, took: list[float]) -> Figures:
    return {
        f"{name}_p50_ms": round(1000 * percentile(took, 0.5), 2),
        f"{name}_p99_ms": round(1000 * percentile(took, 0.99), 2),
    }


@dataclass(slots=True)
class HttpCalls:
    """Creates jobs and reads them."""

    port: int
    token: str
    made: int = 0

    def create(self) -> tuple[str, object]:
        self.made += 1
        return "/api/v1/jobs", {
            "name": f"job-{self.made}", "cron": f"{self.made % 60} 3 1 1 *",
            "callback_url": "https://example.com/hook",
        }  # fmt: skip

    def read(self) -> tuple[str, object]:
        return f"/v1/jobs/job-{1 + time.monotonic_ns() % max(self.made, 1)}", None

    async def many(
        self, verb: str, one: Callable[[], tuple[str, object]], clients: int, seconds: float
    ) -> list[float]:
        """Seconds of each call; ProcessFailed where one is refused."""
        until, took = time.monotonic() + seconds, list[float]()

        async def call() -> None:
            caller = HttpConnection(self.port, self.token)
            while (began := time.monotonic()) < until:
                path, body = one()
                status = await caller.ask(verb, path, body)
                if status not in (200, 201):
                    raise ProcessFailed(f"{verb} {path} was answered with {status}")
                took.append(time.monotonic() - began)
            caller.close()

        await asyncio.gather(*(call() for _ in range(clients)))
        return took


@dataclass(slots=True)
class Watching:
    """What the watchers have, against what was made."""

    made_at: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    # The longest that an event took, of each watcher.
    late: list[float] = field(default_factory=list)

    async def watch(self, number: int, port: int, token: str) -> None:
        caller = HttpConnection(port, token)
        try:
            reader = await caller.send("GET", "/v1/events:watch?filter=kind%3DJOB_CREATED", None)
            while chunk := await reader.read(1 << 16):
                # Each event is one line of data, whose beginning is never cut where it is counted.
                got = chunk.count(b'"job":')
                now, before = time.monotonic(), self.counts[number]
                self.counts[number] += got
                if got and before < len(self.made_at):
                    self.late[number] = max(self.late[number], now - self.made_at[before])
        finally:
            caller.close()


async def watched(
    client: AsyncClient, process: Process, port: int, token: str, http: Http
) -> Figures:
    """So many browsers see so many events a second: how far do they fall behind?"""
    state = Watching(counts=[0] * http.watchers, late=[0.0] * http.watchers)
    watchers = [asyncio.create_task(state.watch(number, port, token))
                for number in range(http.watchers)]  # fmt: skip
    await asyncio.sleep(3.0)
    began, number = time.monotonic(), 0
    before = process.cpu_s(), time.process_time()
    making = set[asyncio.Task[Any]]()
    while (now := time.monotonic()) < began + http.seconds:
        while number < (now - began) * http.events:
            number += 1
            state.made_at.append(now)
            task = asyncio.create_task(client.jobs.create(f"seen-{number}", handler="none"))
            making.add(task)
            task.add_done_callback(making.discard)
        await asyncio.sleep(LOOK_S)
    await asyncio.gather(*making)
    until = time.monotonic() + SETTLE_S
    while min(state.counts) < number and time.monotonic() < until:
        await asyncio.sleep(LOOK_S)
    took = time.monotonic() - began
    shares = (process.cpu_s() - before[0]) / took, (time.process_time() - before[1]) / took
    for one in watchers:
        one.cancel()
    ended = await asyncio.gather(*watchers, return_exceptions=True)
    broken = sum(not isinstance(one, asyncio.CancelledError) for one in ended)
    return {
        "watchers": http.watchers, "watched_events": number, "watchers_broken": broken,
        "watch_missing_max": number - min(state.counts),
        "watch_gateway_core_share": round(shares[0], 2),
        "watch_callers_core_share": round(shares[1], 2),
        "watch_late_max_s": round(max(state.late), 2),
        "watch_late_p50_s": round(percentile(state.late, 0.5), 2),
    }  # fmt: skip


class Flood:
    """Callers without a good token, in a process of their own."""

    def __init__(self, folder: Path, port: int, seconds: float) -> None:
        self.seconds = seconds
        words = ["raftsched.chaos.bench.flood", str(port), str(seconds)]
        self._process = Process("flood", words, folder / "flood.log")

    async def play(self) -> dict[int, int]:
        """How many were answered with what."""
        self._process.start()
        try:
            limit = time.monotonic() + self.seconds + FLOOD_MORE_S
            while self._process.alive and time.monotonic() < limit:
                await asyncio.sleep(10 * LOOK_S)
            if self._process.code != 0:
                raise ProcessFailed(f"the flood failed:\n{self._process.tail()}")
        finally:
            await asyncio.to_thread(self._process.kill)
        answered = json.loads(self._process.log.read_text().splitlines()[-1])
        return {int(status): count for status, count in answered.items()}


async def flooded(client: AsyncClient, nodes: NodeProcesses, token: str, flood: Flood) -> Figures:
    """Callers without a token ask as fast as they can, beside a job that is due each second."""
    worker = Worker(nodes.endpoints, token=token, insecure=True)
    worker.handler("tick")(tick)
    working = asyncio.create_task(worker.serve())
    await client.jobs.create("tick", handler="tick", schedule=cron("* * * * * *"))
    before, began = await client.cluster.status(), time.time_ns()
    answered = await flood.play()
    after = await client.cluster.status()
    late = [
        (one.message.start_time.ToNanoseconds() - one.message.due_time.ToNanoseconds()) / 1e6
        async for one in client.jobs.history("tick")
        if one.message.HasField("start_time") and one.message.due_time.ToNanoseconds() >= began
    ]
    worker.stop()
    with suppress(RaftschedError):
        await working
    return {
        "flood_per_s": round(sum(answered.values()) / flood.seconds),
        "flood_refused": answered.get(401, 0) + answered.get(429, 0),
        "flood_served": sum(answered.get(status, 0) for status in (200, 201)),
        "flood_broken": answered.get(0, 0),
        "flood_runs": len(late), "flood_leader_changes": after.term - before.term,
        "flood_late_p50_ms": round(percentile(late, 0.5), 1),
        "flood_late_p99_ms": round(percentile(late, 0.99), 1),
    }  # fmt: skip


async def tick() -> None:
    """Nothing to do."""
