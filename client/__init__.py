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
    from .aio.runs import AsyncRun as AsyncRun
    from .async_client import AsyncClient as AsyncClient
    from .blocking.runs import Run as Run
    from .context import Context as Context
    from .context import current_context as current_context
    from .errors import AlreadyExists as AlreadyExists
    from .errors import CallerError as CallerError
    from .errors import ClusterError as ClusterError
    from .errors import Conflict as Conflict
    from .errors import InvalidArgument as InvalidArgument
    from .errors import LeaseLost as LeaseLost
    from .errors import NotFound as NotFound
    from .errors import OutcomeUnknown as OutcomeUnknown
    from .errors import RaftschedError as RaftschedError
    from .errors import RateLimited as RateLimited
    from .errors import ResultMismatch as ResultMismatch
    from .errors import RunFailed as RunFailed
    from .errors import RunNotEnded as RunNotEnded
    from .errors import Unavailable as Unavailable
    from .links import Answer as Answer
    from .links import Tls as Tls
    from .outcomes import AttemptFailed as AttemptFailed
    from .outcomes import Cancelled as Cancelled
    from .outcomes import PermanentError as PermanentError
    from .outcomes import RetryLater as RetryLater
    from .policies import After as After
    from .policies import Concurrency as Concurrency
    from .policies import Misfire as Misfire
    from .policies import Overlap as Overlap
    from .policies import Retry as Retry
    from .policies import Timeouts as Timeouts
    from .schedules import after_end as after_end
    from .schedules import cron as cron
    from .schedules import every as every
    from .schedules import once as once
    from .specs import job_of as job_of
    from .sync_client import Client as Client
    from .worker import Worker as Worker

# Else gRPC does work of its own around each fork, in the new process too, where it crashed some 5 %
# of the shell executor's commands before they began. It reads this as it is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

# Name -> the module it stands in.
_HOMES = {
    "After": "policies",
    "AlreadyExists": "errors",
    "Answer": "links",
    "AsyncClient": "async_client",
    "AsyncRun": "aio.runs",
    "AttemptFailed": "outcomes",
    "CallerError": "errors",
    "Cancelled": "outcomes",
    "Client": "sync_client",
    "ClusterError": "errors",
    "Concurrency": "policies",
    "Conflict": "errors",
    "Context": "context",
    "InvalidArgument": "errors",
    "LeaseLost": "errors",
    "Misfire": "policies",
    "NotFound": "errors",
    "OutcomeUnknown": "errors",
    "Overlap": "policies",
    "PermanentError": "outcomes",
    "RaftschedError": "errors",
    "RateLimited": "errors",
    "ResultMismatch": "errors",
    "Retry": "policies",
    "RetryLater": "outcomes",
    "Run": "blocking.runs",
    "RunFailed": "errors",
    "RunNotEnded": "errors",
    "Timeouts": "policies",
    "Tls": "links",
    "Unavailable": "errors",
    "Worker": "worker",
    "after_end": "schedules",
    "cron": "schedules",
    "current_context": "context",
    "every": "schedules",
    "job_of": "specs",
    "once": "schedules",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
