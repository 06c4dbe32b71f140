"""Carries out a job by a unary call over gRPC."""

from __future__ import annotations

import re

import grpc
import grpc.aio

from ...sdk.links import OPTIONS, Tls, failure_of
from ..context import Context
from ..outcomes import AttemptFailed, PermanentError, RetryLater
from . import executor
from .executor import TIMEOUT_S, Executor, result_of, with_secrets

CHANNELS_MAX = 64
# Of a URI; the library knows others, for sockets of this machine among them.
NETWORK_SCHEMES = ("dns", "ipv4", "ipv6")
HOST_PORT = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\])(?::[0-9]{1,5})?", re.ASCII)


class _Target:
    """A connection and the calls that use it now."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.users = 0


class GrpcExecutor(Executor):
    """Sends the payload as the serialized request; the serialized response is the result.

    Sockets of this machine (unix:/run/containerd/containerd.sock) are not called unless `sockets`
    says so. The kind of a failure is "grpc.UNAVAILABLE" and so on, "grpc.method" or "grpc.target".
    `tls` says how to encrypt where an action asks for it.
    """

    name = "grpc"

    def __init__(
        self, *, timeout: float = TIMEOUT_S, tls: Tls | None = None, sockets: bool = False
    ) -> None:
        super().__init__(timeout)
        self._sockets = sockets
        self._tls = tls or Tls()
        self._targets: dict[tuple[str, bool], _Target] = {}

    async def execute(self, context: Context) -> object:
        action = context.lease.action.grpc
        service, slash, method = action.method.lstrip("/").partition("/")
        if not (service and slash and method) or "/" in method:
            raise PermanentError(
                f"method {action.method!r}: write package.Service/Method", kind="grpc.method"
            )
        address = action.target if self._sockets else in_network(action.target)
        target = await self._target(address, action.tls)
        target.users += 1
        try:
            return await self._call(context, target, f"/{service}/{method}")
        finally:
            target.users -= 1

    async def _call(self, context: Context, target: _Target, path: str) -> object:
        action = context.lease.action.grpc
        send: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = target.channel.unary_unary(path)
        call = send(
            context.lease.payload.data,
            timeout=self.timeout_s(context),
            metadata=_metadata(context),
        )
        try:
            answer: bytes = await call
        except grpc.aio.AioRpcError as error:
            failed = failure_of(error)
            message = f"{action.target}{path}: {failed.code}: {failed.message}"
            kind = f"grpc.{failed.code}"
            if failed.retry_after is not None:
                raise RetryLater(failed.retry_after, message, kind=kind) from None
            raise AttemptFailed(message, kind=kind) from None
        for metadata in (await call.initial_metadata(), await call.trailing_metadata()):
            executor.warn_of(context, dict(metadata or ()).get(executor.WARNING_HEADER.lower()))
        return result_of(context, answer, "application/x-protobuf", len(answer))

    async def _target(self, address: str, tls: bool) -> _Target:
        key = (address, tls)
        found = self._targets.pop(key, None) or _Target(self._connect(address, tls))
        # The last one is the one used last.
        self._targets[key] = found
        idle = [one for one, target in self._targets.items() if not target.users and one != key]
        for old in idle[: max(0, len(self._targets) - CHANNELS_MAX)]:
            await self._targets.pop(old).channel.close()
        return found

    def _connect(self, address: str, tls: bool) -> grpc.aio.Channel:
        if tls:
            return grpc.aio.secure_channel(address, self._tls.credentials(), OPTIONS)
        return grpc.aio.insecure_channel(address, OPTIONS)

    async def close(self) -> None:
        targets, self._targets = self._targets, {}
        for target in targets.values():
            await target.channel.close()


def in_network(target: str) -> str:
    """A target as the library cannot take it for anything but a host. PermanentError for others."""
    if target.partition(":")[0].lower() in NETWORK_SCHEMES:
        return target
    if HOST_PORT.fullmatch(target):
        return f"dns:///{target}"
    raise PermanentError(
        f"target {target!r} is no host:port, and sockets of this machine are not called; allow "
        "them with GrpcExecutor(sockets=True)", kind="grpc.target",
    )  # fmt: skip


def _metadata(context: Context) -> tuple[tuple[str, str], ...]:
    ours = {name.lower(): text for name, text in executor.headers(context).items()}
    texts = with_secrets(
        context, context.lease.action.grpc.metadata,
        lambda text: text.isascii() and text.isprintable(), "metadata is printable ASCII",
    )  # fmt: skip
    given = {name.lower(): text for name, text in texts.items()}
    return tuple({**given, **ours}.items())
