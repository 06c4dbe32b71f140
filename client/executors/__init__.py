"""Ready-made handlers for what a job's action names instead of a handler.

    from raftsched.client.executors import GrpcExecutor, HttpExecutor, ShellExecutor

    Worker(executors=[HttpExecutor(), ShellExecutor()]).run()

A worker offers the executors that it is given, and no others.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from ..context import Context


class Executor:
    """What the worker calls: an async handler under a reserved name."""

    name: ClassVar[str]
    is_async = True
    inline = False

    def invoke(self, context: Context) -> Awaitable[object]:
        raise NotImplementedError
