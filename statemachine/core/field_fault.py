"""What is wrong with one field of a request, in the words its author needs to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...proto.v1 import error_pb2


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One wrong field. Wrong input is data, never an exception, and all faults come at once."""

    # Where, as in google.rpc.BadRequest: "schedules[1].cron.expression".
    path: str
    reason: error_pb2.ErrorReason.ValueType
    # What stood there, as text.
    value: str
    why: str
    # What to write instead; empty if there is nothing better to say than `why`.
    instead: str = ""

    @property
    def message(self) -> str:
        """All of it in one line."""
        text = f"{self.value!r}: {self.why}" if self.value else self.why
        return f"{text}; write {self.instead}" if self.instead else text
