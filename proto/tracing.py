"""Whether this process makes spans by OpenTelemetry, and which W3C names go with them.

Node, gateway, SDK and worker ask here. As long as nobody has called `start`, nothing of
OpenTelemetry is loaded, and each question costs the look at one name: `otel_spans.py`, which loads
it, is imported by `start` alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .otel_spans import Spans

logger = logging.getLogger("raftsched.traces")

# Any of them, set, asks for spans; see `wanted`.
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
# Of the tracestate: that the run was due at once, so that its first attempt is a child of the span
# that deferred it.
MEMBER: Final = "raftsched"
AT_ONCE: Final = "now"
STATE_MEMBERS_MAX = 32
# traceparent and tracestate together, as the contract has it.
CONTEXT_BYTES_MAX = 512

_spans: Spans | None = None


def active() -> Spans | None:
    """What makes spans here; None as long as nobody wants any."""
    return _spans


def wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment asks for spans, by the variables that OpenTelemetry has for it."""
    if is_disabled(environ):
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    return bool(exporter) or any(environ.get(name) for name in ENDPOINTS)


def is_disabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment forbids them, whoever wants them."""
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return disabled or environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"


def start(service: str, provider: object = None, instance: str = "") -> Spans | None:
    """Make spans from now on: by `provider`, else by that of the program, else by one that is made
    by the environment. None if the environment forbids it. Raises ImportError without
    raftsched[otel], ValueError for what the environment has wrong."""
    global _spans
    if _spans is None and not is_disabled():
        try:
            from . import otel_spans
        except ImportError as error:
            raise ImportError(
                f"spans need OpenTelemetry, which is not installed here ({error}): "
                "pip install 'raftsched[otel]'"
            ) from error
        _spans = otel_spans.made_by(provider, service, instance)
    return _spans


def start_if_wanted(service: str, instance: str = "") -> Spans | None:
    """For a program of ours: start if the environment asks for it. What is wrong with that is
    logged: it must not keep the program from its work."""
    if _spans is None and wanted():
        try:
            return start(service, None, instance)
        except (ImportError, ValueError) as error:
            logger.warning("there will be no spans: %s", error)
    return _spans


@contextmanager
def running(service: str) -> Iterator[None]:
    """Around a program of ours that ends with this, which makes spans if it is asked to."""
    before = _spans
    start_if_wanted(service)
    try:
        yield
    finally:
        if before is None:
            stop()
        else:
            before.flush()


def stop() -> None:
    """Send what waits, for a second at most, and make no more spans."""
    global _spans
    spans, _spans = _spans, None
    if spans is not None:
        spans.close()


def is_at_once(state: str) -> bool:
    """Whether a tracestate says so."""
    return any(one.strip() == f"{MEMBER}={AT_ONCE}" for one in state.split(","))


def marked(carrier: Mapping[str, str], *, at_once: bool) -> dict[str, str]:
    """The context that a run is given, which says whether it is due at once, where there is room
    for that."""
    parent = carrier.get("traceparent", "")
    if not parent:
        return {}
    state = plain_state(carrier.get("tracestate", ""))
    members = state.split(",") if state else []
    if at_once:
        members = [f"{MEMBER}={AT_ONCE}", *members]
    text = ",".join(members[:STATE_MEMBERS_MAX])
    if len(parent) + len(text) > CONTEXT_BYTES_MAX:
        text = f"{MEMBER}={AT_ONCE}" if at_once else ""
    return {"traceparent": parent, "tracestate": text} if text else {"traceparent": parent}


def plain_state(state: str) -> str:
    """A tracestate without our member, which is about one run."""
    if MEMBER not in state:
        return state
    members = [one.strip() for one in state.split(",")]
    return ",".join(one for one in members if not one.startswith(f"{MEMBER}="))
