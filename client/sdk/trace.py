"""Which trace the code that runs now belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

from ...proto import tracing


class TracedAttempt(Protocol):
    """An attempt that a handler carries out, as far as calls need to know it."""

    @property
    def trace_context(self) -> Mapping[str, str]: ...


# Set by the worker for as long as a handler runs.
CURRENT: ContextVar[TracedAttempt] = ContextVar("raftsched_attempt")


def current_trace() -> Mapping[str, str]:
    """The `trace_context` of the handler that calls this; empty outside of one, and where calls
    have spans, to which what they defer belongs."""
    attempt = None if tracing.active() is not None else CURRENT.get(None)
    return {} if attempt is None else attempt.trace_context
