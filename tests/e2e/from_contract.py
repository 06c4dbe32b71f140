"""A client and a worker that know the contracts alone: stubs that protoc made, and gRPC.

    PYTHONPATH=STUBS python from_contract.py HOST:PORT,HOST:PORT RUNS

It is what the author of an SDK for another language would write first, so it imports nothing of
the product. It declares a job, asks for runs of it, carries them out on a stream and follows the
events. "under way" is its word for somebody to take the leader away while it holds leases; a line
on its standard input lets it go on, and its last line says in JSON what it saw.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

common, error, event, job, options, run, worker = (
    import_module(f"raftsched.v1.{name}_pb2")
    for name in ("common", "error", "event", "job", "options", "run", "worker")
)
Next = options.Next
CALL_S, TRY_S, WHOLE_S = 60.0, 4.0, 120.0
WAIT_FIRST_S, WAIT_MAX_S = 0.05, 2.0
SLOTS, WELCOME_S = 8, 3.0
JOB = "from-the-contract"
OURS = ("raftsched.client", "raftsched.cluster", "raftsched.proto", "raftsched.statemachine")
# Of gRPC itself, and the same call would meet it again.
FINAL = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED)
TRY_AGAIN = {Next.Value(f"NEXT_{one}") for one in ("ANY_NODE", "OTHER_NODE", "LATER", "REPEAT")}


class Refused(Exception):
    """What a status says, as common.proto has it."""

    def __init__(self, failed: grpc.aio.AioRpcError) -> None:
        super().__init__(f"{failed.code().name}: {failed.details()}")
        self.trailers = dict(failed.trailing_metadata() or ())
        self.reason, self.metadata, self.after = "", dict[str, str](), 0.0
        details = self.trailers.get("grpc-status-details-bin", b"")
        for one in status_pb2.Status.FromString(bytes(details)).details:
            info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
            if one.Unpack(info) and info.domain == "raftsched":
                self.reason, self.metadata = info.reason, dict(info.metadata)
            elif one.Unpack(retry):
                self.after = retry.retry_delay.ToMilliseconds() / 1000
        # Whatever breaks a connection off; the codes that say so differ between libraries.
        self.again = not self.reason and failed.code() not in FINAL
        if self.reason:
            value = error.ErrorReason.DESCRIPTOR.values_by_name[f"ERROR_REASON_{self.reason}"]
            self.again = value.GetOptions().Extensions[options.refusal].next in TRY_AGAIN


def wait_s(failures: int) -> float:
    """Grows, and differs between callers."""
    step: float = min(WAIT_FIRST_S * 2**failures, WAIT_MAX_S)
    return step * random.uniform(1.0, 1.5)


class Nodes:
    """Where the nodes are, and who leads."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._channels = {one: grpc.aio.insecure_channel(one) for one in addresses}
        self._leader = ""
        self.revision = ""

    def pick(self, but: str = "") -> str:
        if self._leader in self._channels and self._leader != but:
            return self._leader
        return random.choice([one for one in self._channels if one != but])

    def stub(self, address: str, service: str) -> Any:  # noqa: ANN401  # protoc's own.
        module = import_module(f"raftsched.v1.{service.lower()}_pb2_grpc")
        return getattr(module, f"{service}ServiceStub")(self._channels[address])

    def learn(self, trailers: Any) -> None:  # noqa: ANN401  # gRPC's own.
        said = dict(trailers or ())
        self._leader = said.get("raftsched-leader", "")
        self.revision = said.get("raftsched-revision", self.revision)

    async def ask(self, service: str, name: str, request: Any) -> Any:  # noqa: ANN401
        """One call, sent again with the same request id until it is answered."""
        if "request_id" in request.DESCRIPTOR.fields_by_name:
            request.request_id = str(uuid.uuid4())
        end, failures, address = time.monotonic() + CALL_S, 0, self.pick()
        while True:
            call = getattr(self.stub(address, service), name)(request, timeout=TRY_S)
            try:
                answer = await call
            except grpc.aio.AioRpcError as failed:
                refused = Refused(failed)
            else:
                self.learn(await call.trailing_metadata())
                return answer
            self.learn(refused.trailers)
            if not refused.again or time.monotonic() > end:
                raise refused
            await asyncio.sleep(max(refused.after, wait_s(failures)))
            failures, address = failures + 1, self.pick(but=address)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()


class Worker:
    """One slot for each attempt; what has ended is reported until it is acknowledged."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._id = f"contract-{uuid.uuid4().hex[:12]}"
        self._held: dict[int, Any] = {}
        self._ended: dict[int, Any] = {}
        self._unsent: list[int] = []
        self._open = 0
        self._news = asyncio.Event()
        self._tasks = set[asyncio.Task[None]]()
        self.draining, self._drain_sent = False, False
        # All slots are taken; and what lets the attempts in them end.
        self.full, self.gate = asyncio.Event(), asyncio.Event()
        self.done, self.seen = Counter[str](), Counter[str]()
        self._heartbeat_s = WELCOME_S

    def drain(self) -> None:
        self.draining = True
        self._news.set()

    def _first(self) -> Any:  # noqa: ANN401
        """The hello, with all that has no acknowledged end and the reports of what has ended."""
        hello = worker.WorkerHello(
            worker=self._id, queues=[JOB], handlers=[JOB], slots=SLOTS,
            welcomed=self.seen["welcome"] > 0,
            held=[worker.HeldLease(run=one.run, token=token) for token, one in self._held.items()],
        )  # fmt: skip
        self._unsent, self._open, self._drain_sent = list(self._ended), 0, False
        frame = self._next()
        frame.hello.CopyFrom(hello)
        return frame

    def _next(self) -> Any:  # noqa: ANN401
        frame = worker.WorkRequest(beat=time.monotonic_ns())
        frame.results.extend(self._ended[token] for token in self._unsent if token in self._ended)
        self._unsent = []
        if self.draining:
            frame.drain, self._drain_sent = not self._drain_sent, True
        else:
            free = SLOTS - (len(self._held) - len(self._ended)) - self._open
            frame.credits, self._open = free, self._open + free
        self._news.clear()
        return frame

    async def _attempt(self, lease: Any) -> None:  # noqa: ANN401
        await self.gate.wait()
        self.done[lease.run] += 1
        result = worker.Result(run=lease.run, token=lease.token)
        result.success.result.data = json.dumps(lease.attempt).encode()
        self._ended[lease.token] = result
        self._unsent.append(lease.token)
        self._news.set()

    def _read(self, frame: Any) -> None:  # noqa: ANN401
        if frame.HasField("welcome"):
            self.seen["welcome"] += 1
            self._heartbeat_s = frame.welcome.heartbeat.ToMilliseconds() / 1000
        for ack in frame.acks:
            self.seen[f"ack {ack.reason}".strip()] += 1
            self._forget(ack.token)
        for stop in frame.stops:
            self.seen[f"stop {stop.kind}"] += 1
            if stop.kind == worker.Stop.KIND_LOST:
                self._forget(stop.token)
        for lease in frame.leases:
            self._open -= 1
            self._held[lease.token] = lease
            task = asyncio.create_task(self._attempt(lease))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if len(self._held) == SLOTS:
            self.full.set()

    def _forget(self, token: int) -> None:
        self._held.pop(token, None)
        self._ended.pop(token, None)

    async def _write(self, call: Any) -> None:  # noqa: ANN401
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_s / 2):
                    await self._news.wait()
            except TimeoutError:
                pass  # A beat.
            await call.write(self._next())

    async def _stream(self, address: str) -> str:
        """Until it ends; where to go then."""
        call = self._nodes.stub(address, "Worker").Work()
        writing: asyncio.Task[None] | None = None
        silence_s = WELCOME_S
        try:
            await call.write(self._first())
            writing = asyncio.create_task(self._write(call))
            while True:
                async with asyncio.timeout(silence_s):
                    frame = await call.read()
                if frame is grpc.aio.EOF:
                    return ""
                self._read(frame)
                silence_s = 2 * self._heartbeat_s
                if frame.HasField("redirect"):
                    self.seen["redirect"] += 1
                    return str(frame.redirect.leader)
                if frame.drain and not self._held:
                    await call.done_writing()
        except grpc.aio.AioRpcError as failed:
            refused = Refused(failed)
            self.seen[refused.reason or "broken"] += 1
            if not refused.again and refused.reason != "SESSION_LOST":
                raise refused from None
            return ""
        except TimeoutError:
            self.seen["silent"] += 1
            return ""
        finally:
            if writing is not None:
                writing.cancel()
                # What it could not write any more is written on the next stream.
                await asyncio.gather(writing, return_exceptions=True)
            call.cancel()

    async def work(self) -> None:
        address, failures = self._nodes.pick(), 0
        while not self.draining or self._held:
            before = self.seen["welcome"]
            to = await self._stream(address)
            failures = 0 if self.seen["welcome"] > before else failures + 1
            if not to:
                await asyncio.sleep(wait_s(failures))
            address = to or self._nodes.pick(but=address)


class Watch:
    """Every event of the job's runs, once and in order, on whichever node is there."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        change, _, position = nodes.revision.partition(".")
        self._after = common.Revision(change=int(change), position=int(position))
        self.seen = Counter[tuple[str, str]]()
        self.places = list[tuple[int, int]]()
        self.ended = 0

    async def follow(self, runs: int) -> None:
        """Until so many have succeeded."""
        address, failures = self._nodes.pick(), 0
        while self.ended < runs:
            address = self._nodes.pick(but=address)
            request = event.WatchEventsRequest(filter=f"job={JOB}", after=self._after)
            call = self._nodes.stub(address, "Event").WatchEvents(request)
            try:
                while self.ended < runs:
                    async with asyncio.timeout(2 * 10.0):
                        frame = await call.read()
                    self._read(frame)
                    failures = 0
            except (grpc.aio.AioRpcError, TimeoutError) as failed:
                if isinstance(failed, grpc.aio.AioRpcError) and not Refused(failed).again:
                    raise
                failures += 1
                await asyncio.sleep(wait_s(failures))
            finally:
                call.cancel()

    def _read(self, frame: Any) -> None:  # noqa: ANN401
        for one in frame.events:
            self.places.append((one.revision.change, one.revision.position))
            self.seen[one.run.id, event.EventKind.Name(one.kind)] += 1
            self.ended += one.kind == event.EVENT_KIND_RUN_SUCCEEDED
        self._after = frame.progress


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def declare(nodes: Nodes) -> str:
    """The job; and what a change under a version that is gone is answered."""
    spec = job.JobSpec(action=job.Action(handler=JOB), queue=JOB)
    wanted = job.CreateJobRequest(job=job.Job(name=JOB, spec=spec))
    changed = job.UpdateJobRequest(job=await nodes.ask("Job", "CreateJob", wanted))
    changed.job.spec.owner = "somebody"
    changed.update_mask.paths.append("spec.owner")
    await nodes.ask("Job", "UpdateJob", changed)
    try:
        await nodes.ask("Job", "UpdateJob", changed)
    except Refused as refused:
        return refused.reason
    return "done"


async def main(addresses: str, runs: int) -> None:
    nodes = Nodes(addresses.split(","))
    refused = await declare(nodes)
    watch, working = Watch(nodes), Worker(nodes)
    asked = list[str]()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(watch.follow(runs))
        tasks.create_task(working.work())
        for number in range(runs // 2):
            if number == 2 * SLOTS:
                await working.full.wait()
                say("under way")
                await asyncio.to_thread(sys.stdin.readline)
                working.gate.set()
            trigger = job.TriggerJobRequest(job=JOB)
            asked.append((await nodes.ask("Job", "TriggerJob", trigger)).id)
        many = job.TriggerJobsRequest(triggers=[job.Trigger(job=JOB)] * (runs - len(asked)))
        asked += [one.run for one in (await nodes.ask("Job", "TriggerJobs", many)).results]
        await following
        waited = await nodes.ask("Run", "WaitRun", run.WaitRunRequest(run=asked[-1]))
        working.drain()
    await nodes.close()
    said = {
        "refused": refused,
        "runs": len(set(asked)),
        "carried out": sorted(set(map(working.done.__getitem__, asked))),
        "others": len(set(working.done) - set(asked)),
        "fired": sorted({watch.seen[one, "EVENT_KIND_RUN_FIRED"] for one in asked}),
        "succeeded": sorted({watch.seen[one, "EVENT_KIND_RUN_SUCCEEDED"] for one in asked}),
        "in order": watch.places == sorted(set(watch.places)),
        "state": run.RunState.Name(waited.state),
        "worker": working.seen,
        "ours": sorted(set(OURS) & set(sys.modules)),
    }  # fmt: skip
    say(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(main(sys.argv[1], int(sys.argv[2])), WHOLE_S))
