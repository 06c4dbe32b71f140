"""The web page with many jobs and runs: how long until a page stands, and what do open ones cost?

Pages are opened by a Chromium of this machine where there is one that Playwright can steer; the
overviews that stay open are callers of our own, which ask what the page asks, as often as it does.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ...client import AsyncClient, every
from ...cluster.local.nodes import NodeProcesses
from ...cluster.local.ports import LOOPBACK
from ...cluster.local.process import Process, ProcessFailed
from ..percentile import percentile
from .herd import Herd, import_all, live_runs, requests_of
from .http import HttpConnection, gateway
from .idle import Import, cpu_s
from .kept import filled_with, is_filled
from .steady import OverTime, Steady
from .steady import run as run_steady
from .worker_processes import WorkerProcesses

Figures = dict[str, float | int]
# Playwright is loaded when it is used, and carries types of its own then.
Browser = Any
Page = Any
Say = Callable[[str], None]
HERD_MAX = 200_000  # Runs that are made at a time, and how long that may take.
RUN_S, LOOK_S = 600.0, 0.1
SETTLE_S, OPEN_MS = 5.0, 60_000
# Between two pages that are opened: who looks at one gives it the time to ask for what it shows
# later, such as the count of a list.
LOOK_AT_S = 0.5
TURNS = 5
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]  # fmt: skip
LOADED = """() => document.querySelector("main h1")
  && !document.querySelector("main [aria-label=Loading], main tr.waits")"""
REFUSED = """() => document.querySelector("main .note[role=alert]")?.innerText ?? ''"""
# What a person may look at; JOB and RUN are one that is there.
PAGES = {
    "overview": "/", "jobs": "/jobs", "jobs_found": "/jobs?q=name%3Aidle-00001",
    "jobs_paused": "/jobs?q=state%3DPAUSED", "job": "/jobs/JOB", "new_job": "/new-job",
    "runs": "/runs", "runs_ended": "/runs?q=state%3DSUCCEEDED", "run": "/runs/RUN",
    "flows": "/flows", "queues": "/queues", "queue": "/queues/default", "workers": "/workers",
    "dead": "/dead", "timeline": "/timeline", "cluster": "/cluster", "settings": "/settings",
    "audit": "/settings/audit",
}  # fmt: skip
# What an open overview asks: each how often, in seconds.
STATUS_S, FIGURES_S, TROUBLES_S, FORECAST_S, WHO_S = 2.0, 2.0, 20.0, 60.0, 60.0
STALE = {"namespace": "default", "read.consistency": "CONSISTENCY_STALE"}
STEP_S = 10


@dataclass(frozen=True, kw_only=True)
class PagesLoad:
    """What is asked for."""

    jobs: int = 1_000_000
    # Of them so many ran before, once each.
    runs: int = 100_000
    # Overviews that stay open, and for how long.
    open: int = 20
    seconds: float = 30.0


async def run(
    folder: Path, nodes: NodeProcesses, load: PagesLoad, say: Say, over_time: OverTime
) -> Figures:
    if (filled := filled_with(folder)) is None:
        filled = await fill(folder, nodes, load, say, over_time)
        is_filled(folder, filled)
    else:
        say(f"{folder} has {filled['jobs']:,} jobs and {filled['runs']:,} runs from before")
    found: Figures = dict(filled)
    found["rss_mb_max"] = max(node.rss_mb() for node in nodes)
    async with gateway(folder, nodes) as (process, port, _), AsyncClient(nodes.endpoints) as client:
        await asyncio.sleep(SETTLE_S)
        # In a folder that is kept, those of earlier times are there, too.
        name = f"looked-at-{int(time.time())}"
        await client.jobs.create(name, handler="noop", schedule=every(3_600))
        one = await client.jobs.trigger(name)
        found |= await opened(port, {"JOB": name, "RUN": one.id}, say)
        if load.open:
            say(f"{load.open} open overviews, beside a steady load of 20 a second")
            costs = await stay_open(folder, nodes, process, port, load, name)
            say(f"they cost {costs['open_core_share']} of a core")
            found |= costs
        found["gateway_rss_mb"] = process.rss_mb(peak=True)
    return found


async def fill(
    folder: Path, nodes: NodeProcesses, load: PagesLoad, say: Say, over_time: OverTime
) -> Figures:
    """Import jobs, and have some of them run."""
    filled: Figures = {"jobs": load.jobs, "runs": load.runs}
    async with AsyncClient(nodes.endpoints) as client:
        if load.jobs > load.runs:
            took = await Import(nodes, load.jobs - load.runs, say, over_time).run(client)
            filled["import_s"] = round(took, 1)
    await make_runs(folder, nodes, load.runs, say)
    return filled


async def make_runs(folder: Path, nodes: NodeProcesses, runs: int, say: Say) -> None:
    """Have so many jobs run once each; their runs are kept."""
    workers = WorkerProcesses(folder, nodes.endpoints, 2, slots=2_000)
    workers.start()
    try:
        async with AsyncClient(nodes.endpoints) as client:
            for begun in range(0, runs, HERD_MAX):
                say(f"{begun:,} of {runs:,} runs are kept")
                herd = Herd(runs=min(HERD_MAX, runs - begun))
                wanted = begun + herd.runs
                now_ms = int(time.time() * 1_000)
                await import_all(client, requests_of(herd, now_ms, f"ran-{begun:08d}"))
                until = time.monotonic() + RUN_S
                while workers.begun() < wanted or await live_runs(client):
                    if time.monotonic() > until:
                        raise ProcessFailed(f"{workers.begun()} of {wanted} runs were begun")
                    await asyncio.sleep(LOOK_S)
    finally:
        workers.stop()


# Pages that are opened.


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """None where there is none."""
    named = next(filter(None, map(shutil.which, PROGRAMS)), "")
    program = os.environ.get("RAFTSCHED_CHROMIUM", "") or named
    if not program or find_spec("playwright") is None:
        yield None
        return
    async with import_module("playwright.async_api").async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


async def opened(port: int, names: dict[str, str], say: Say) -> Figures:
    """Milliseconds until all that a page asks for is there: the median and the worst."""
    found: Figures = {}
    async with chromium() as browser:
        if browser is None:
            say("no chromium, or no playwright: pages are not opened")
            return found
        first = [await first_view(browser, port) for _ in range(TURNS)]
        found["first_view_ms"] = round(percentile(first, 0.5))
        say(f"first view: {found['first_view_ms']} ms")
        context = await browser.new_context(viewport={"width": 1_280, "height": 800})
        page = await context.new_page()
        for name, path in PAGES.items():
            for word, there in names.items():
                path = path.replace(word, there)
            took = [await stands(page, port, path) for _ in range(TURNS)]
            found[f"{name}_ms"] = round(percentile(took, 0.5))
            found[f"{name}_worst_ms"] = round(max(took))
            say(f"{name}: {found[f'{name}_ms']} ms, at worst {found[f'{name}_worst_ms']}")
        await context.close()
    found["page_worst_median_ms"] = max(found[f"{name}_ms"] for name in PAGES)
    return found


async def first_view(browser: Browser, port: int) -> float:
    """With nothing in the browser's memory."""
    context = await browser.new_context(viewport={"width": 1_280, "height": 800})
    try:
        return await stands(await context.new_page(), port, "/")
    finally:
        await context.close()


async def stands(page: Page, port: int, path: str) -> float:
    began = time.monotonic()
    await page.goto(f"http://{LOOPBACK}:{port}{path}", wait_until="commit")
    await page.wait_for_function(LOADED, timeout=OPEN_MS, polling=5)
    took = time.monotonic() - began
    if refused := await page.evaluate(REFUSED):
        raise ProcessFailed(f"{path} shows no more than: {refused}")
    await asyncio.sleep(LOOK_AT_S)
    return 1_000 * took


# Pages that stay open.


async def stay_open(
    folder: Path, nodes: NodeProcesses, process: Process, port: int, load: PagesLoad, job: str
) -> Figures:
    steady = Steady(rate=20, seconds=load.seconds)
    alone = await run_steady(folder, nodes, steady)
    quiet = await ticking(nodes, process, load.seconds, job)
    watching = [asyncio.create_task(watch(port)) for _ in range(load.open)]
    watching += [asyncio.create_task(follow(port)) for _ in range(load.open)]
    # What each asks for once, it has by then.
    await asyncio.sleep(SETTLE_S)
    busy = await ticking(nodes, process, load.seconds, job)
    beside = await run_steady(folder, nodes, steady)
    for one in watching:
        one.cancel()
    broken = [
        one for one in await asyncio.gather(*watching, return_exceptions=True)
        if not isinstance(one, asyncio.CancelledError)
    ]  # fmt: skip
    if broken:
        raise ProcessFailed(f"{len(broken)} open pages ended; the first: {broken[0]!r}")
    return {
        "open_pages": load.open,
        "open_gateway_core_share": round(busy[0] - quiet[0], 4),
        "open_nodes_core_share": round(busy[1] - quiet[1], 4),
        "open_core_share": round(sum(busy) - sum(quiet), 4),
        "late_p99_ms_without": alone["lateness_p99_ms"], "late_p99_ms": beside["lateness_p99_ms"],
    }  # fmt: skip


async def ticking(nodes: NodeProcesses, process: Process, seconds: float, job: str) -> list[float]:
    """The shares of a core that gateway and nodes take, with a few events each second: the runs
    that go through ahead of a steady load would be a thousand."""
    async with AsyncClient(nodes.endpoints) as client:
        before, began = (process.cpu_s(), cpu_s(nodes)), time.monotonic()
        while time.monotonic() < began + seconds:
            await client.jobs.trigger(job)
            await asyncio.sleep(1.0)
        now, took = (process.cpu_s(), cpu_s(nodes)), time.monotonic() - began
    return [(one - other) / took for one, other in zip(now, before, strict=True)]


async def follow(port: int) -> None:
    """The stream of events of one browser."""
    caller = HttpConnection(port)
    try:
        reader = await caller.send("GET", "/v1/events:watch?namespace=default")
        while await reader.read(1 << 16):
            pass
        raise ProcessFailed("a stream of events ended")
    finally:
        caller.close()


async def watch(port: int) -> None:
    """An overview that is looked at: each of its questions in its own rhythm."""
    await asyncio.gather(
        asks(port, STATUS_S, lambda: ["/v1/cluster"]), asks(port, FIGURES_S, figures_path()),
        asks(port, TROUBLES_S, troubles_paths), asks(port, WHO_S, lambda: ["/v1/whoami"]),
        asks(port, FORECAST_S, lambda: ["/v1/forecast?namespace=default&ahead=3600s&maxAge=600s"]),
    )  # fmt: skip


async def asks(port: int, every_s: float, paths: Callable[[], list[str]]) -> None:
    await asyncio.sleep(random.random() * min(every_s, FIGURES_S))
    caller = HttpConnection(port)
    try:
        while True:
            for path in paths():
                if (status := await caller.ask("GET", path)) != 200:
                    raise ProcessFailed(f"{path} was answered with {status}")
            await asyncio.sleep(every_s)
    finally:
        caller.close()


def figures_path() -> Callable[[], list[str]]:
    """First what a plot of fifteen minutes shows, and then those since the newest."""
    asked = False

    def paths() -> list[str]:
        nonlocal asked
        near = at(timedelta(minutes=2), STEP_S)
        since = [("STEP_SECOND", at(timedelta(seconds=1), 1))]
        if not asked:
            since = [("STEP_TEN_SECONDS", at(timedelta(minutes=15), STEP_S)), ("STEP_SECOND", near)]
        asked = True
        return [
            f"/v1/cluster/figures?{urlencode({'step': step, 'sinceTime': time})}"
            for step, time in since
        ]

    return paths


def troubles_paths() -> list[str]:
    hour, minute = at(timedelta(hours=1), STEP_S), at(timedelta(minutes=1), STEP_S)
    pending = f"state=PENDING AND due_time<{minute}"
    return [
        f"/v1/deadLetters?{urlencode(STALE | {'filter': f'end_time>{hour}', 'pageSize': 200})}",
        f"/v1/runs?{urlencode(STALE | {'filter': pending, 'pageSize': 5})}",
        f"/v1/alerts?{urlencode({'read.consistency': STALE['read.consistency']})}",
        f"/v1/alerts?{urlencode(STALE)}",
    ]


def at(ago: timedelta, step_s: int) -> str:
    """An instant of the past in steps, as the page asks."""
    seconds = int((datetime.now(UTC) - ago).timestamp()) // step_s * step_s
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.000Z}"
