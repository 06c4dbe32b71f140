"""Ready-made handlers, by the name programs import them from; `worker/executors/` has them.

from raftsched.client.executors import GrpcExecutor, HttpExecutor, ShellExecutor
"""

from __future__ import annotations

from .worker.executors import CannotIsolate, Executor, GrpcExecutor, HttpExecutor, ShellExecutor

__all__ = ["CannotIsolate", "Executor", "GrpcExecutor", "HttpExecutor", "ShellExecutor"]
