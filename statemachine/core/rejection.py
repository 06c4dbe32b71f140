"""How the rules say no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from ...proto.v1 import error_pb2

Reason = error_pb2.ErrorReason


@dataclass(frozen=True, slots=True)
class Fault:
    """One wrong field of a request."""

    field: str
    reason: error_pb2.ErrorReason.ValueType
    message: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reply that says no. Nothing was changed."""

    reason: error_pb2.ErrorReason.ValueType
    # What, why with the value, and what to do next.
    message: str
    # Every value that the message mentions, by name.
    values: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    retry_after_ms: int = 0

    @property
    def word(self) -> str:
        """The reason as it is written on the wire."""
        return Reason.Name(self.reason).removeprefix("ERROR_REASON_")


class Refused(Exception):
    """Raised by a rule before it has changed anything; decide makes it the request's reply."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection

    @classmethod
    def because(
        cls, reason: error_pb2.ErrorReason.ValueType, message: str, **values: object
    ) -> Self:
        return cls(Rejection(reason, message, {k: str(v) for k, v in values.items()}))

    @classmethod
    def of(cls, faults: list[Fault]) -> Self:
        """All wrong fields at once; the first one's reason speaks for them."""
        message = "; ".join(f"{fault.field}: {fault.message}" for fault in faults)
        values = {"field": faults[0].field}
        return cls(Rejection(faults[0].reason, message, values, tuple(faults)))
