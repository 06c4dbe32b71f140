"""How the tests of the services talk to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from raftsched.proto.v1 import job_pb2

# What has a type for each call, or none at all.
Anything = Any
Metadata = dict[str, str | bytes]


@dataclass
class Refusal:
    """What a refused call came with."""

    code: grpc.StatusCode
    message: str
    trailing: Metadata
    reason: str = ""
    values: dict[str, str] = field(default_factory=dict)
    faults: list[tuple[str, str, str]] = field(default_factory=list)
    retry_ms: int = 0
    quota: str = ""


def handler_job(name: str, **spec: Anything) -> job_pb2.Job:
    action = job_pb2.Action(handler="work")
    return job_pb2.Job(name=name, spec=job_pb2.JobSpec(action=action, **spec))


def create(name: str, **more: Anything) -> job_pb2.CreateJobRequest:
    return job_pb2.CreateJobRequest(job=handler_job(name), **more)


async def until(happened: Callable[[], object]) -> None:
    """Wait for something; the deadline is there for what never happens."""
    async with asyncio.timeout(60):
        while not happened():
            await asyncio.sleep(0.001)


async def trailing_of(call: Anything) -> Metadata:
    return dict(tuple(await call.trailing_metadata()))


async def refused(call: Awaitable[Message | str]) -> Refusal:
    """Wait for a call that must be refused."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise AssertionError(f"it was not refused: {answer}")


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    trailing: Metadata = dict(tuple(error.trailing_metadata() or ()))
    found = Refusal(error.code(), error.details() or "", trailing)
    details = trailing.get("grpc-status-details-bin")
    if isinstance(details, bytes):
        status = status_pb2.Status.FromString(details)
        assert (status.code, status.message) == (error.code().value[0], error.details())
        infos = [_read(item, found) for item in status.details]
        assert sum(infos) == 1, "a refusal has exactly one ErrorInfo"
    return found


def _read(item: Anything, found: Refusal) -> bool:
    if item.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
        info = error_details_pb2.ErrorInfo.FromString(item.value)
        assert info.domain == "raftsched"
        found.reason, found.values = info.reason, dict(info.metadata)
        return True
    if item.Is(error_details_pb2.BadRequest.DESCRIPTOR):
        for one in error_details_pb2.BadRequest.FromString(item.value).field_violations:
            found.faults.append((one.field, one.reason, one.description))
    elif item.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
        delay = error_details_pb2.RetryInfo.FromString(item.value).retry_delay
        found.retry_ms = delay.ToMilliseconds()
    elif item.Is(error_details_pb2.QuotaFailure.DESCRIPTOR):
        found.quota = error_details_pb2.QuotaFailure.FromString(item.value).violations[0].subject
    return False
