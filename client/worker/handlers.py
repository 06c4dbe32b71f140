"""A function as a handler: how the payload becomes its arguments."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ...proto.v1.common_pb2 import Payload
from ..sdk.models import from_json, is_model
from .context import Context
from .outcomes import PayloadInvalid

# What a job can name; see `handler` in job.proto.
NAME_MAX: Final = 128
# A job names executors in other fields than handlers.
EXECUTORS: Final = frozenset({"http", "grpc", "shell"})
# A single parameter of such a kind takes the payload whole.
WHOLE: Final = (bytes, dict, Mapping, msgspec.Struct)

Function = Callable[..., Any]


class _Given:
    """The default of a parameter that the worker fills in."""

    def __repr__(self) -> str:
        return "GIVEN"


# async def report(to: str, context: Context = GIVEN, database: Database = GIVEN) -> None: ...
# Whoever calls the function, or defers it, leaves these out.
GIVEN: Any = _Given()


@dataclasses.dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function, by what fills them."""

    # Those whose type is Context; those that an app provides; and those of the payload.
    contexts: tuple[inspect.Parameter, ...]
    given: tuple[inspect.Parameter, ...]
    rest: tuple[inspect.Parameter, ...]
    # The payload is the one parameter, and not an object with its parameters as members.
    whole: bool
    positional: tuple[str, ...]
    # What the function says it returns; None: nothing, or it does not say.
    returns: Any


class Handler:
    """A function under its name.

    The members of the payload, a JSON object, are the parameters, by name. A single parameter takes
    the payload whole if it is a dataclass, a TypedDict, a Struct, a model of pydantic, a dict or
    `bytes`, which take it unread; so does, of any type, one that is positional-only:
    `def f(names: list[str], /)`. A parameter of type Context takes no part in this.
    """

    def __init__(
        self, name: str, function: Function, *, inline: bool = False, provides_given: bool = False
    ) -> None:
        self.name = checked_name(name)
        self.function = function
        self.is_async = _is_async(function)
        self.inline = inline
        if inline and self.is_async:
            raise ValueError(f"handler {name!r} is async; `inline` is for sync functions")
        self.parameters = parameters_of(name, function)
        if self.parameters.given and not provides_given:
            one = self.parameters.given[0].name
            raise TypeError(
                f"handler {name!r}: {one!r} is GIVEN, and only an App provides it: declare the "
                "function by @app.task, or give the parameter another default"
            )
        self.reader = reader_of(name, self.parameters)
        # Takes a Context, returns what the function returns (for async: its coroutine).
        self.invoke: Callable[[Context], Any] = _invoker(function, self.parameters, self.reader)

    def around(self, invoke: Callable[[Context], Any]) -> Handler:
        """The same under its name, called in another way."""
        other = copy.copy(self)
        other.invoke = invoke
        return other

    def arguments(
        self, context: Context, payload: Payload, given: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """What the function is called with."""
        named: dict[str, Any] = {} if self.reader is None else self.reader(payload)
        for one in self.parameters.contexts:
            named[one.name] = context
        named.update(given)
        return [named.pop(name) for name in self.parameters.positional], named


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


def parameters_of(name: str, function: Function) -> Parameters:
    """What a function takes, and from where."""
    hints = hints_of(name, function)
    contexts, given, rest = list[inspect.Parameter](), list[inspect.Parameter](), []
    positional = list[str]()
    for found in inspect.signature(function).parameters.values():
        if found.kind in (found.VAR_POSITIONAL, found.VAR_KEYWORD):
            raise TypeError(f"handler {name!r} has *{found.name}; name each parameter")
        one = found.replace(annotation=hints.get(found.name, Any))
        if one.kind is one.POSITIONAL_ONLY:
            positional.append(one.name)
        if _is_context(one):
            contexts.append(one)
        elif one.default is GIVEN:
            given.append(_provided(name, one))
        else:
            rest.append(one)
    if len(contexts) > 1:
        raise TypeError(f"handler {name!r} has {len(contexts)} parameters of type Context")
    only = [one for one in rest if one.kind is one.POSITIONAL_ONLY]
    if only and len(rest) > 1:
        raise TypeError(
            f"handler {name!r}: a positional-only parameter takes the whole payload, so "
            f"{next(one.name for one in rest if one is not only[0])!r} would have nothing; write "
            "all of them without `/`"
        )
    whole = bool(only) or (len(rest) == 1 and _is_whole(rest[0].annotation))
    returns = hints.get("return")
    return Parameters(
        tuple(contexts), tuple(given), tuple(rest), whole, tuple(positional),
        None if returns in (type(None), object) else returns,
    )  # fmt: skip


def hints_of(name: str, function: Function) -> dict[str, Any]:
    """The annotations of a function, as types."""
    try:
        inspect.signature(function)
        return typing.get_type_hints(_plain(function), include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise TypeError(f"the parameters of handler {name!r} cannot be read: {error}") from error


def _plain(function: Function) -> Any:  # noqa: ANN401  # Whatever get_type_hints takes.
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _is_context(one: inspect.Parameter) -> bool:
    kinds = [one.annotation, *typing.get_args(one.annotation)]
    return any(isinstance(kind, type) and issubclass(kind, Context) for kind in kinds)


def _provided(name: str, one: inspect.Parameter) -> inspect.Parameter:
    if one.annotation is Any or not isinstance(one.annotation, type):
        raise TypeError(
            f"handler {name!r}: {one.name!r} is GIVEN by its type; say by an annotation which "
            "class it is"
        )
    return one


def _is_whole(kind: Any) -> bool:  # noqa: ANN401  # Any annotation.
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    origin = typing.get_origin(kind) or kind
    if origin in (typing.Union, types.UnionType):
        kinds = [one for one in typing.get_args(kind) if one is not type(None)]
        return all(map(_is_whole, kinds))
    if typing.is_typeddict(origin) or is_model(origin):
        return True
    return isinstance(origin, type) and (
        dataclasses.is_dataclass(origin) or issubclass(origin, WHOLE)
    )


Reader = Callable[[Payload], dict[str, Any]]


def reader_of(name: str, parameters: Parameters) -> Reader | None:
    """How the payload becomes arguments; None where the function takes nothing of it."""
    rest = parameters.rest
    if not rest:
        return None
    return _whole_reader(rest[0]) if parameters.whole else _members_reader(name, rest)


def _invoker(
    function: Function, parameters: Parameters, read: Reader | None
) -> Callable[[Context], Any]:
    contexts, first = parameters.contexts, parameters.positional
    if read is None:
        return _without_payload(function, contexts)
    context_name = contexts[0].name if contexts else ""

    def invoke(context: Context) -> Any:  # noqa: ANN401
        arguments = read(context.lease.payload)
        if context_name:
            arguments[context_name] = context
        return function(*[arguments.pop(name) for name in first], **arguments)

    return invoke


def _without_payload(
    function: Function, contexts: tuple[inspect.Parameter, ...]
) -> Callable[[Context], Any]:
    if not contexts:
        return lambda context: function()
    if contexts[0].kind is inspect.Parameter.POSITIONAL_ONLY:
        return lambda context: function(context)
    key = contexts[0].name
    return lambda context: function(**{key: context})


def _whole_reader(one: inspect.Parameter) -> Reader:
    if one.annotation is bytes:
        return lambda payload: {one.name: payload.data}
    decode = msgspec.json.Decoder(one.annotation, dec_hook=from_json).decode
    has_default = one.default is not one.empty

    def read(payload: Payload) -> dict[str, Any]:
        if not payload.data and has_default:
            return {one.name: one.default}
        return {one.name: _decoded(decode, payload, str(one))}

    return read


def _members_reader(name: str, rest: tuple[inspect.Parameter, ...]) -> Reader:
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
    decode = msgspec.json.Decoder(members, dec_hook=from_json).decode
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
