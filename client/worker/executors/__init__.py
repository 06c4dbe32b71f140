"""Ready-made handlers for what a job's action names instead of a handler.

    from raftsched.client.executors import GrpcExecutor, HttpExecutor, ShellExecutor

    Worker(executors=[HttpExecutor(), ShellExecutor(memory=512 * 1024 * 1024)]).run()

A worker offers the executors that it is given, and no others: what a job may make a worker's
machine do is for the owner of the worker to say.
"""

from __future__ import annotations

from .executor import Executor
from .grpc_call import GrpcExecutor
from .http import HttpExecutor
from .isolation import CannotIsolate
from .shell import ShellExecutor

__all__ = ["CannotIsolate", "Executor", "GrpcExecutor", "HttpExecutor", "ShellExecutor"]
