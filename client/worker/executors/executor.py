"""What all executors share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import ClassVar

from ....proto import secret_text
from ....proto.v1.common_pb2 import Payload
from ..context import Context
from ..outcomes import CONTENT_TYPE_MAX, PAYLOAD_BYTES_MAX, PermanentError

# How long a call may take that has no deadline of its own.
TIMEOUT_S = 300.0
TIMEOUT_MAX_S = 7 * 86_400.0
WARNING_HEADER = "Raftsched-Warning"


class Executor:
    """An async handler under a reserved name; the worker calls `invoke`."""

    name: ClassVar[str]
    is_async = True
    inline = False

    def __init__(self, timeout: float) -> None:
        if not 0 < timeout <= TIMEOUT_MAX_S:
            raise ValueError(f"timeout is {timeout!r}; it must be over 0 and at most 7 days")
        self._timeout = timeout

    @property
    def invoke(self) -> Callable[[Context], Awaitable[object]]:
        return self._invoke

    async def _invoke(self, context: Context) -> object:
        if not context.lease.HasField("heartbeat_timeout"):
            return await self._carry_out(context)
        beating = asyncio.create_task(_beat(context))
        try:
            return await self._carry_out(context)
        finally:
            beating.cancel()

    async def _carry_out(self, context: Context) -> object:
        await context.fetch_secrets()
        return await self.execute(context)

    async def execute(self, context: Context) -> object:
        """Do it; what comes back is the run's result."""
        raise NotImplementedError

    async def open(self) -> None:
        """The worker is about to serve: look whether what is needed is there."""

    async def close(self) -> None:
        """The worker stops: let go of what is held."""

    def timeout_s(self, context: Context) -> float | None:
        """None: the attempt has a deadline, at which the worker stops it."""
        return None if context.lease.HasField("deadline") else self._timeout


async def _beat(context: Context) -> None:
    """A job may ask to hear of its attempts more often; that it is under way is all there is."""
    began = monotonic()
    period = context.lease.heartbeat_timeout.ToMilliseconds() / 1000 / 3
    while True:
        await asyncio.sleep(max(0.1, period))
        context.progress(int(monotonic() - began), 0, "seconds under way")


def facts(context: Context) -> dict[str, str]:
    """What every target hears of its run (Action, in the contracts), beside the run's id."""
    lease = context.lease
    return {
        "Token": str(lease.token),
        "Attempt": str(lease.attempt),
        "Job": lease.job,
        "Namespace": lease.namespace,
        "Scheduled-Time": lease.scheduled_time.ToJsonString(),
    }


def headers(context: Context) -> dict[str, str]:
    """The same as headers of a call, with where it belongs in a trace."""
    ours = {f"Raftsched-{name}": text for name, text in facts(context).items()}
    run = {"Idempotency-Key": context.run, "Raftsched-Run": context.run}
    return {**run, **ours, **context.trace_context}


def with_secrets(
    context: Context, texts: Mapping[str, str], fits: Callable[[str], bool], what: str
) -> dict[str, str]:
    """Texts of an action with the secrets that they name; each must be one that can be sent."""
    if not context.secrets:
        return dict(texts)
    made = secret_text.filled(texts, context.secrets)
    for name, text in made.items():
        if text != texts[name] and not fits(text):
            secrets = ", ".join(secret_text.NAMED.findall(texts[name]))
            raise PermanentError(
                f"{name} cannot hold the value of the secret {secrets}: {what}",
                kind="secret.value",
            )
    return made


def warn_of(context: Context, text: object) -> None:
    """What a target that succeeded says in its header for warnings, if it does."""
    if isinstance(text, str) and text.strip():
        context.warn(text)


def result_of(context: Context, data: bytes, content_type: str, size: int) -> Payload | None:
    """What was answered, if it can be kept whole; half a document is worth nothing."""
    if size > PAYLOAD_BYTES_MAX:
        context.log.warning(
            "the answer has over %s bytes, so it is not kept", f"{PAYLOAD_BYTES_MAX:,}"
        )
        return None
    return Payload(data=data, content_type=content_type[:CONTENT_TYPE_MAX]) if data else None
