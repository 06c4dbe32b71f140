"""What a program uses to talk to a raftsched cluster.

    from raftsched.client import Client

    with Client("node-1:7400,node-2:7400,node-3:7400") as client:
        ...

`Client` blocks, `AsyncClient` is for asyncio; both have the same methods. Every error is a
`RaftschedError`. Nothing is loaded before it is asked for, so importing this costs nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .app.app import App as App
    from .app.codecs import Codec as Codec
    from .app.entries import TaskEntry as TaskEntry
    from .app.handle import AsyncTaskRun as AsyncTaskRun
    from .app.handle import SomeRefused as SomeRefused
    from .app.handle import TaskRun as TaskRun
    from .app.middleware import DeferCall as DeferCall
    from .app.sync import Changes as Changes
    from .app.task import Task as Task
    from .app.views import JobInfo as JobInfo
    from .app.views import LeaseInfo as LeaseInfo
    from .app.views import RunInfo as RunInfo
    from .calls.aio.client import AsyncClient as AsyncClient
    from .calls.aio.run import AsyncRun as AsyncRun
    from .calls.blocking.client import Client as Client
    from .calls.blocking.run import Run as Run
    from .sdk.errors import AlreadyExists as AlreadyExists
    from .sdk.errors import CallerError as CallerError
    from .sdk.errors import ClusterError as ClusterError
    from .sdk.errors import Conflict as Conflict
    from .sdk.errors import InvalidArgument as InvalidArgument
    from .sdk.errors import LeaseLost as LeaseLost
    from .sdk.errors import NotFound as NotFound
    from .sdk.errors import OutcomeUnknown as OutcomeUnknown
    from .sdk.errors import RaftschedError as RaftschedError
    from .sdk.errors import RateLimited as RateLimited
    from .sdk.errors import ResultMismatch as ResultMismatch
    from .sdk.errors import RunFailed as RunFailed
    from .sdk.errors import RunNotEnded as RunNotEnded
    from .sdk.errors import Unavailable as Unavailable
    from .sdk.imports import ImportProgress as ImportProgress
    from .sdk.links import Answer as Answer
    from .sdk.links import Tls as Tls
    from .sdk.policies import After as After
    from .sdk.policies import Concurrency as Concurrency
    from .sdk.policies import Misfire as Misfire
    from .sdk.policies import Overlap as Overlap
    from .sdk.policies import Retry as Retry
    from .sdk.policies import Timeouts as Timeouts
    from .sdk.schedules import after_end as after_end
    from .sdk.schedules import cron as cron
    from .sdk.schedules import every as every
    from .sdk.schedules import once as once
    from .sdk.specs import job_of as job_of
    from .sdk.tracing import start_tracing as start_tracing
    from .sdk.tracing import stop_tracing as stop_tracing
    from .sdk.triggers import trigger_of as trigger_of
    from .worker.context import Context as Context
    from .worker.context import current_context as current_context
    from .worker.handlers import GIVEN as GIVEN
    from .worker.outcomes import AttemptFailed as AttemptFailed
    from .worker.outcomes import Cancelled as Cancelled
    from .worker.outcomes import PermanentError as PermanentError
    from .worker.outcomes import RetryLater as RetryLater
    from .worker.worker import Worker as Worker

# Else gRPC does work of its own around each fork, in the new process too, where it crashed some 5 %
# of the shell executor's commands before they began. It reads this as it is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

# Name -> the module it stands in.
_HOMES = {
    "After": "sdk.policies",
    "AlreadyExists": "sdk.errors",
    "Answer": "sdk.links",
    "App": "app.app",
    "AsyncClient": "calls.aio.client",
    "AsyncRun": "calls.aio.run",
    "AsyncTaskRun": "app.handle",
    "AttemptFailed": "worker.outcomes",
    "CallerError": "sdk.errors",
    "Cancelled": "worker.outcomes",
    "Changes": "app.sync",
    "Client": "calls.blocking.client",
    "ClusterError": "sdk.errors",
    "Codec": "app.codecs",
    "Concurrency": "sdk.policies",
    "Conflict": "sdk.errors",
    "Context": "worker.context",
    "DeferCall": "app.middleware",
    "GIVEN": "worker.handlers",
    "ImportProgress": "sdk.imports",
    "InvalidArgument": "sdk.errors",
    "JobInfo": "app.views",
    "LeaseInfo": "app.views",
    "LeaseLost": "sdk.errors",
    "Misfire": "sdk.policies",
    "NotFound": "sdk.errors",
    "OutcomeUnknown": "sdk.errors",
    "Overlap": "sdk.policies",
    "PermanentError": "worker.outcomes",
    "RaftschedError": "sdk.errors",
    "RateLimited": "sdk.errors",
    "ResultMismatch": "sdk.errors",
    "Retry": "sdk.policies",
    "RetryLater": "worker.outcomes",
    "Run": "calls.blocking.run",
    "RunFailed": "sdk.errors",
    "RunInfo": "app.views",
    "RunNotEnded": "sdk.errors",
    "SomeRefused": "app.handle",
    "Task": "app.task",
    "TaskEntry": "app.entries",
    "TaskRun": "app.handle",
    "Timeouts": "sdk.policies",
    "Tls": "sdk.links",
    "Unavailable": "sdk.errors",
    "Worker": "worker.worker",
    "after_end": "sdk.schedules",
    "cron": "sdk.schedules",
    "current_context": "worker.context",
    "every": "sdk.schedules",
    "job_of": "sdk.specs",
    "once": "sdk.schedules",
    "start_tracing": "sdk.tracing",
    "stop_tracing": "sdk.tracing",
    "trigger_of": "sdk.triggers",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
