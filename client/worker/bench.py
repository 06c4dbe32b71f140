"""What a run costs a worker: CPU per no-op run, over a real stream, at full rate.

    python -m raftsched.client.worker.bench --json

The server is another process that only hands out leases it has made beforehand, so the figures are
the worker's alone, gRPC's threads included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from time import monotonic, process_time
from typing import Any

import grpc
import grpc.aio

from ...proto.v1.worker_pb2 import WorkRequest, WorkResponse
from .worker import Worker, loop_factory

FRAME = 500
KINDS = ("async", "sync", "inline")
SCHEDULED_MS = 1_790_000_000_000


class Feed:
    """Hands out so many leases, as fast as credits come in, and acknowledges all results."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._frames = [_frame(start, min(FRAME, runs - start)) for start in range(0, runs, FRAME)]

    async def work(
        self, requests: AsyncIterator[WorkRequest], context: object
    ) -> AsyncIterator[bytes]:
        out: asyncio.Queue[bytes | None] = asyncio.Queue(10_000)
        reading = asyncio.create_task(self._read(requests, out))
        while (frame := await out.get()) is not None:
            yield frame
        await reading

    async def _read(
        self, requests: AsyncIterator[WorkRequest], out: asyncio.Queue[bytes | None]
    ) -> None:
        credits = sent = 0
        async for request in requests:
            answer = WorkResponse(beat=request.beat, drain=request.drain)
            if request.HasField("hello"):
                answer.welcome.heartbeat.FromSeconds(10)
                answer.welcome.lapse.FromSeconds(30)
            _acknowledge(request.results, answer)
            await out.put(answer.SerializeToString())
            credits = 0 if request.drain else credits + request.credits
            while credits >= FRAME and sent < len(self._frames):
                await out.put(self._frames[sent])
                sent, credits = sent + 1, credits - FRAME
        await out.put(None)


def _acknowledge(results: Any, answer: WorkResponse) -> None:  # noqa: ANN401  # A repeated field.
    for result in results:
        answer.acks.add(token=result.token, subject=1)


def _frame(start: int, count: int) -> bytes:
    frame = WorkResponse()
    for number in range(start, start + count):
        lease = frame.leases.add(
            namespace="default",
            run=f"job-{number}:2026-11-18T16:00:00.000Z",
            job=f"job-{number}",
            token=1_000_000 + number,
            attempt=1,
            max_attempts=4,
        )
        lease.action.handler = "noop"
        lease.scheduled_time.FromMilliseconds(SCHEDULED_MS + number)
        lease.due_time.FromMilliseconds(SCHEDULED_MS + number)
    return frame.SerializeToString()


async def _serve(runs: int) -> None:
    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[WorkRequest, bytes] = grpc.stream_stream_rpc_method_handler(
        Feed(runs).work,
        request_deserializer=WorkRequest.FromString,
        response_serializer=None,
    )
    service = grpc.method_handlers_generic_handler("raftsched.v1.WorkerService", {"Work": handler})
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


class Measure:
    """Counts runs as they come, and the CPU from the first to the last of them."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self.count = 0
        self.began = self.cpu_began = self.ended = self.cpu_ended = 0.0
        self.done = False

    def noop(self) -> None:
        if self.count == 0:
            self.began, self.cpu_began = monotonic(), process_time()
        self.count += 1
        if self.count == self._runs:
            self.ended, self.cpu_ended = monotonic(), process_time()
            self.done = True

    async def noop_async(self) -> None:
        self.noop()


async def _measure(kind: str, port: str, runs: int, slots: int) -> dict[str, object]:
    worker = Worker(f"127.0.0.1:{port}", slots=slots)
    measure = Measure(runs)
    noop = measure.noop_async if kind == "async" else measure.noop
    worker.handler("noop", inline=kind == "inline")(noop)
    serving = asyncio.create_task(worker.serve())
    while not measure.done:
        await asyncio.sleep(0.05)
        if serving.done():
            await serving
    worker.stop()
    await serving
    took, cpu = measure.ended - measure.began, measure.cpu_ended - measure.cpu_began
    return {
        "handler": kind,
        "runs": runs,
        "cpu_us_per_run": round(cpu / runs * 1e6, 2),
        "runs_per_s": round(runs / took),
    }


def bench(kind: str, runs: int, slots: int) -> dict[str, object]:
    command = [sys.executable, "-m", __spec__.name, "--serve", "--runs", str(runs)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as feed:
        assert feed.stdout is not None
        port = feed.stdout.readline().strip()
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_measure(kind, port, runs, slots))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--slots", type=int, default=4_000)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.slots < FRAME:
        parser.error(f"--slots is {arguments.slots}; leases come {FRAME} at a time, so take more")
    if arguments.serve:
        asyncio.run(_serve(arguments.runs))
        return
    for kind in arguments.kind or KINDS:
        found = bench(kind, arguments.runs, arguments.slots)
        if arguments.json:
            words = json.dumps(found)
        else:
            words = "{handler:6} {cpu_us_per_run:6} µs CPU a run, {runs_per_s:,} runs/s".format(
                **found
            )
        sys.stdout.write(words + "\n")


if __name__ == "__main__":
    main()
