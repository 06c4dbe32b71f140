"""A function as a handler: how the payload becomes its arguments."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ...proto.v1.common_pb2 import Payload
from .context import Context
from .outcomes import PayloadInvalid

# What a job can name; see `handler` in job.proto.
NAME_MAX: Final = 128
# A job names executors in other fields than handlers.
EXECUTORS: Final = frozenset({"http", "grpc", "shell"})

Function = Callable[..., Any]


class Handler:
    """A function under its name.

    The members of the payload, a JSON object, are the parameters, by name. A handler whose only
    parameter is positional-only, `def f(order: Order, /)`, takes the payload whole; as `bytes` it
    takes it unread. A parameter of type Context takes no part in this.
    """

    def __init__(self, name: str, function: Function, *, inline: bool = False) -> None:
        self.name = checked_name(name)
        self.function = function
        self.is_async = _is_async(function)
        self.inline = inline
        if inline and self.is_async:
            raise ValueError(f"handler {name!r} is async; `inline` is for sync functions")
        # Takes a Context, returns what the function returns (for async: its coroutine).
        self.invoke: Callable[[Context], Any] = _invoker(name, function)


def checked_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"handler name {name!r}: write a text, as in @worker.handler('send-mail')")
    if not name or len(name) > NAME_MAX or " " in name or not name.isprintable():
        raise ValueError(f"handler name {name!r}: write 1 to {NAME_MAX} characters without spaces")
    if name in EXECUTORS:
        raise ValueError(f"handler name {name!r} is the name of an executor; choose another")
    return name


def _is_async(function: Function) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{function!r} yields; a handler returns its result")
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def _invoker(name: str, function: Function) -> Callable[[Context], Any]:
    parameters = _parameters(name, function)
    contexts = [one for one in parameters if _is_context(one)]
    rest = [one for one in parameters if not _is_context(one)]
    if len(contexts) > 1:
        raise TypeError(f"handler {name!r} has {len(contexts)} parameters of type Context")
    if not rest:
        return _without_payload(function, contexts)
    whole = [one for one in rest if one.kind is one.POSITIONAL_ONLY]
    if whole and len(rest) > 1:
        raise TypeError(
            f"handler {name!r}: a positional-only parameter takes the whole payload, so "
            f"{rest[1].name!r} would have nothing; write all of them without `/`"
        )
    read = _whole_reader(rest[0]) if whole else _members_reader(name, rest)
    positional = [one for one in parameters if one.kind is one.POSITIONAL_ONLY]
    return _with_payload(function, contexts, positional, read)


def _parameters(name: str, function: Function) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(_plain(function), include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise TypeError(f"the parameters of handler {name!r} cannot be read: {error}") from error
    found = []
    for one in signature.parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise TypeError(f"handler {name!r} has *{one.name}; name each parameter")
        found.append(one.replace(annotation=hints.get(one.name, Any)))
    return found


def _plain(function: Function) -> Any:  # noqa: ANN401  # Whatever get_type_hints takes.
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _is_context(one: inspect.Parameter) -> bool:
    kinds = [one.annotation, *typing.get_args(one.annotation)]
    return any(isinstance(kind, type) and issubclass(kind, Context) for kind in kinds)


def _without_payload(
    function: Function, contexts: list[inspect.Parameter]
) -> Callable[[Context], Any]:
    if not contexts:
        return lambda context: function()
    if contexts[0].kind is inspect.Parameter.KEYWORD_ONLY:
        key = contexts[0].name
        return lambda context: function(**{key: context})
    return lambda context: function(context)


Reader = Callable[[Payload], dict[str, Any]]


def _with_payload(
    function: Function,
    contexts: list[inspect.Parameter],
    positional: list[inspect.Parameter],
    read: Reader,
) -> Callable[[Context], Any]:
    context_name = contexts[0].name if contexts else ""
    first = [one.name for one in positional]

    def invoke(context: Context) -> Any:  # noqa: ANN401
        arguments = read(context.lease.payload)
        if context_name:
            arguments[context_name] = context
        return function(*[arguments.pop(name) for name in first], **arguments)

    return invoke


def _whole_reader(one: inspect.Parameter) -> Reader:
    if one.annotation is bytes:
        return lambda payload: {one.name: payload.data}
    decode = msgspec.json.Decoder(one.annotation).decode
    has_default = one.default is not one.empty

    def read(payload: Payload) -> dict[str, Any]:
        if not payload.data and has_default:
            return {one.name: one.default}
        return {one.name: _decoded(decode, payload, str(one))}

    return read


def _members_reader(name: str, rest: list[inspect.Parameter]) -> Reader:
    fields: list[Any] = [
        (one.name, one.annotation)
        if one.default is one.empty
        else (one.name, one.annotation, _default(one.default))
        for one in rest
    ]
    members = msgspec.defstruct(
        "".join(c if c.isalnum() else "_" for c in name),
        fields,
        forbid_unknown_fields=True,
        kw_only=True,
    )
    decode = msgspec.json.Decoder(members).decode
    takes = ", ".join(str(one) for one in rest)
    names = [one.name for one in rest]

    def read(payload: Payload) -> dict[str, Any]:
        found = _decoded(decode, payload, takes)
        return {key: getattr(found, key) for key in names}

    return read


def _default(value: object) -> object:
    # A struct refuses a list as a default, since all instances would share it, as the function's
    # own calls do.
    return msgspec.field(default_factory=lambda: value)


def _decoded(decode: Callable[[bytes], Any], payload: Payload, takes: str) -> Any:  # noqa: ANN401
    kind = payload.content_type.partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise PayloadInvalid(f"the payload is {kind}, the handler takes JSON for: {takes}")
    try:
        return decode(payload.data or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PayloadInvalid(f"{error}; the handler takes: {takes}") from error
