"""Short ways to ask a machine: answers, refusals, and all pages of a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from google.protobuf.message import Message

from raftsched.proto.v1 import error_pb2
from raftsched.statemachine.core.rejection import Rejection
from raftsched.statemachine.model.view import View
from raftsched.statemachine.model.workers import Workers
from raftsched.statemachine.reads.reads import read

from .driver import Machine, image

Answer = TypeVar("Answer", bound=Message)
Asked = TypeVar("Asked", bound=Message)
PAGES_MAX = 1_000


def ask(machine: Machine, request: Message, kind: type[Answer], workers: Workers = ()) -> Answer:
    """The answer of a read on a snapshot."""
    answer = read(View(machine.store.snapshot(), machine.now_ms), request, workers)
    assert isinstance(answer, kind), answer
    return answer


def refuse(machine: Machine, request: Message) -> error_pb2.ErrorReason.ValueType:
    """The reason why a read is refused; reads change nothing."""
    return refusal(machine, request).reason


def refusal(machine: Machine, request: Message) -> Rejection:
    """The same with its words."""
    before = image(machine.store)
    answer = read(machine.view(), request)
    assert isinstance(answer, Rejection), answer
    assert image(machine.store) == before
    return answer


def but(message: Asked, **fields: object) -> Asked:
    """A copy of a message with some fields changed."""
    other = type(message)()
    other.CopyFrom(message)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def token(answer: Message) -> str:
    return str(getattr(answer, "next_page_token"))  # noqa: B009  # Only lists have it.


def pages(machine: Machine, request: Message, kind: type[Answer]) -> Iterator[Answer]:
    """All pages of a list, one after the other."""
    for _ in range(PAGES_MAX):
        answer = ask(machine, request, kind)
        yield answer
        if not token(answer):
            return
        request = but(request, page_token=token(answer))
    raise AssertionError(f"a list has over {PAGES_MAX} pages")
