"""A function's parameters, seen from a call: its arguments become the payload of a run.

What the worker fills in (see GIVEN) is no part of it. The payload is read back at once, as the
worker will read it, so what a handler would refuse is refused where it is sent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..sdk.values import JSON, Payload, payload
from ..worker.handlers import Parameters, Reader, parameters_of, reader_of
from ..worker.outcomes import PayloadInvalid


class PayloadBinding:
    """How the arguments of a call become a payload, and a payload the arguments of a handler."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.parameters: Parameters = parameters_of(name, function)
        self.reader: Reader | None = reader_of(name, self.parameters)
        self._signature = inspect.Signature(self.parameters.rest)
        rest = self.parameters.rest
        placed = [one.name for one in rest if one.kind is not one.KEYWORD_ONLY]
        self._placed, self._names = tuple(placed), tuple(one.name for one in rest)
        self._by_name = {one.name for one in rest if one.kind is not one.POSITIONAL_ONLY}
        self._needed = {one.name for one in rest if one.default is one.empty}

    def written(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Payload | None:
        """The payload of a call with these arguments; None where the handler takes nothing."""
        given = self._bound(args, kwargs)
        if not given:
            return None
        if self.parameters.whole:
            [value] = given.values()
            if self.parameters.rest[0].annotation is bytes and not isinstance(value, bytes):
                raise TypeError(f"{self.name} takes bytes, and {value!r:.80} are none")
            made = _whole(value)
        else:
            made = payload(given)
        return self.checked(made)

    def _bound(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Mapping[str, object]:
        """What is given, by name, in the order of the parameters; TypeError as a call would."""
        # Signature.bind costs as much as all the rest of an entry, of which thousands are made.
        if len(args) <= len(self._placed):
            given = dict(zip(self._placed, args, strict=False))
            if not kwargs:
                if self._needed <= given.keys():
                    return given
            elif kwargs.keys() <= self._by_name and given.keys().isdisjoint(kwargs):
                given.update(kwargs)
                if self._needed <= given.keys():
                    return {name: given[name] for name in self._names if name in given}
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as wrong:
            raise TypeError(
                f"{self.name}: {wrong}; it takes {self.takes}. Options of the run stand before: "
                f"{self.name}.options(key=...).defer(...)"
            ) from None

    def checked(self, made: Payload | None) -> Payload | None:
        """A payload that the handler takes; TypeError for another."""
        if self.reader is not None:
            try:
                self.reader(made or Payload())
            except PayloadInvalid as wrong:
                raise TypeError(f"{self.name}: {wrong}") from None
        elif made is not None:
            raise TypeError(f"{self.name} takes no payload; leave it out")
        return made

    @property
    def takes(self) -> str:
        """The parameters, for people."""
        return ", ".join(str(one) for one in self.parameters.rest) or "no arguments"


def _whole(value: object) -> Payload | None:
    if isinstance(value, bytes):
        return payload(value)
    if value is None:
        return Payload(data=b"null", content_type=JSON)
    if isinstance(value, str):
        import msgspec

        return Payload(data=msgspec.json.encode(value), content_type=JSON)
    return payload(value)
