"""Makes the typed calls of `aio/` from the contracts: one class for each service of catalog.toml.

What a call takes and answers is read from the descriptors, what it does from the comments. It
runs where the code is written; nobody needs it later.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from ...proto.comments import comment
from ...proto.contract import Method, methods
from .catalog import SERVICES, TypedCall, TypedService

WIDTH = 90
# Said by the options of a call, or by how a list is read.
BY_OPTIONS = {
    "namespace", "request_id", "validate_only", "read", "page_size", "page_token", "with_count",
    "update_mask",
}  # fmt: skip
# Fields whose names say what the types of Python say already.
SHORTER = {
    "from_time": "start", "to_time": "end", "scheduled_time": "scheduled", "since_time": "since",
}  # fmt: skip
# Resource -> what makes its message of options, and the types of those of a new one, of a change.
RESOURCES = {
    "Spec": ("build", "SpecWriting", "SpecWriting"),
    "Namespace": ("namespace_of", "NamespaceWriting", "NamespaceWriting"),
    "Alert": ("alert_of", "AlertWriting", "AlertWriting"),
    "Calendar": ("calendar_of", "CalendarWriting", "CalendarChanging"),
    "Queue": ("queue_of", "QueueWriting", "QueueWriting"),
    "Secret": ("secret_of", "SecretWriting", "SecretWriting"),
    "Token": ("token_of", "TokenWriting", "TokenWriting"),
}
# Options without which there is no resource, so they may be given by place.
NEEDED = {"days": "Sequence[Days]", "role": "RoleWord"}
kinds = FieldDescriptor
SCALARS = {
    kinds.CPPTYPE_STRING: ("str", '""'),
    kinds.CPPTYPE_BOOL: ("bool", "False"),
    kinds.CPPTYPE_INT32: ("int", "0"),
    kinds.CPPTYPE_INT64: ("int", "0"),
}
# Message -> its type in Python, and what makes the message of it.
WELL_KNOWN = {
    "google.protobuf.Timestamp": ("datetime", "timestamp"),
    "google.protobuf.Duration": ("Length", "duration"),
    "raftsched.v1.Payload": ("object", "values.payload"),
}
# Whatever a file may need; the formatter takes out what it does not.
HEAD = '''\
# Made from the contracts and catalog.toml by generate.py; write there.
"""{doc}"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Literal, Unpack

from ....proto.v1 import {modules}
from ...sdk import values
from ...sdk.options import EachCall, ReadOptions, Writing, parted
from ...sdk.ranges import made
from ...sdk.days import Days
from ...sdk.resources import AlertWriting, CalendarChanging, CalendarWriting, alert_of
from ...sdk.resources import NamespaceWriting, SpecWriting, calendar_of, namespace_of
from ...sdk.resources import QueueWriting, RoleWord, SecretWriting, TokenWriting
from ...sdk.resources import queue_of, secret_of, token_of
from ...sdk.specs import build
from ...sdk.values import Length, ListCount, choice, duration, texts, timestamp
from .run import AsyncRun
from .service import AsyncService
'''
CLIENT = '''\
# Made from catalog.toml by generate.py; write there.
"""The asynchronous client with its typed calls, each kind loaded when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ...sdk.async_core import AsyncClientCore

if TYPE_CHECKING:
{imports}


class AsyncClient(AsyncClientCore):
    """Talks to a cluster from one asyncio loop. The same methods as Client, to be awaited.

    async with AsyncClient("node-1:7400,node-2:7400", namespace="shop") as client:
        await client.jobs.create("report", handler="build", schedule=cron("0 6 * * *"))
        run = await client.jobs.trigger("report")
        print(await run.result(timeout=60))

    It belongs to the loop of its first call. Nothing is connected before that. Each call has a
    deadline, goes to the leader where that is known, and is tried again at another node, with the
    same request_id, as long as that can help and the deadline allows.
    """
'''


def asynchronous() -> dict[str, str]:
    """The text of each file that is made, by its name; not formatted."""
    found = {f"{service.attribute}.py": _service(service) for service in SERVICES}
    return found | {"client.py": _client()}


def _client() -> str:
    imports = (f"    from .{one.attribute} import Async{one.kind}" for one in SERVICES)
    text = CLIENT.format(imports="\n".join(imports))
    for one in SERVICES:
        text += f'''
    @cached_property
    def {one.attribute}(self) -> Async{one.kind}:
        """{one.doc}"""
        from .{one.attribute} import Async{one.kind}

        return Async{one.kind}(self)
'''
    return text


def _service(service: TypedService) -> str:
    calls = [(call, _method(call.rpc)) for call in service.calls]
    modules = {_module(m.request.DESCRIPTOR) for _, m in calls} | {"run_pb2", "common_pb2"}
    modules |= {_module(m.response.DESCRIPTOR) for _, m in calls}
    for _, method in calls:
        modules |= {_module(_owner(f)) for f in method.request.DESCRIPTOR.fields if _owner(f)}
        modules |= {_module(f.message_type) for f in method.response.DESCRIPTOR.fields
                    if f.message_type is not None and _is_ours(f.message_type)}  # fmt: skip
    text = HEAD.format(doc=service.doc, modules=", ".join(sorted(modules)))
    base = f"Async{service.kind}ByHand" if service.by_hand else "AsyncService"
    if service.by_hand:
        text += f"from .{service.attribute}_by_hand import {base}\n"
    text += f'\n\nclass Async{service.kind}({base}):\n    """{service.doc}"""\n'
    for call, method in calls:
        text += "\n" + textwrap.indent("\n".join(_CallText(service, call, method).lines()), "    ")
        text += "\n"
    return text


def _method(name: str) -> Method:
    [found] = [method for method in methods() if method.name.endswith(f"/{name}")]
    return found


def _module(descriptor: Any) -> str:  # noqa: ANN401  # Of a message or an enum.
    return str(descriptor.file.name).rpartition("/")[2].removesuffix(".proto") + "_pb2"


def _python(descriptor: Any) -> str:  # noqa: ANN401  # Of a message or an enum.
    inner = str(descriptor.full_name).removeprefix("raftsched.v1.")
    return f"{_module(descriptor)}.{inner}"


def _is_ours(descriptor: Any) -> bool:  # noqa: ANN401  # Of a message or an enum.
    return str(descriptor.full_name).startswith("raftsched.v1.")


def _owner(field: Any) -> Any:  # noqa: ANN401
    kind = field.message_type or field.enum_type
    return kind if kind is not None and _is_ours(kind) else None


def _words(enum: EnumDescriptor) -> tuple[str, list[str]]:
    """What the values of an enum begin with, and the words behind that."""
    first = enum.values[0].name.removesuffix("UNSPECIFIED")
    return first, [value.name.removeprefix(first).lower() for value in enum.values[1:]]


class _Parameter:
    """One parameter of a method, and the field that it fills."""

    def __init__(self, field: Any, name: str, optional: bool) -> None:  # noqa: ANN401
        self.field, self.name, self.optional = field, name, optional
        self.type, self.default, self.value = self._kind(field)

    def _kind(self, field: Any) -> tuple[str, str, str]:  # noqa: ANN401
        """Its type, what it is when nothing is said, and what fills the field."""
        name = self.name
        if field.enum_type is not None:
            prefix, words = _words(field.enum_type)
            words_of = ", ".join(f'"{word}"' for word in words)
            chosen = f'choice({_python(field.enum_type)}, "{prefix}", {name})'
            if self.optional:
                chosen = f"None if {name} is None else {chosen}"
            return f"Literal[{words_of}]", "None", chosen
        if field.message_type is not None:
            known = WELL_KNOWN.get(field.message_type.full_name)
            if known is None:
                return _python(field.message_type), "None", name
            return known[0], "None", f"{known[1]}({name})"
        kind, default = SCALARS[field.cpp_type]
        if field.is_repeated:
            return f"Sequence[{kind}]", "()", f"texts({name}, {name!r})"
        return kind, default, name

    def __str__(self) -> str:
        if not self.optional:
            return f"{self.name}: {self.type}"
        may_be_none = self.default == "None" and self.type != "object"
        return f"{self.name}: {self.type}{' | None' if may_be_none else ''} = {self.default}"


class _CallText:
    """The method that makes one call."""

    def __init__(self, service: TypedService, call: TypedCall, method: Method) -> None:
        self.service, self.call, self.method = service, call, method
        self.fields = dict(method.request.DESCRIPTOR.fields_by_name)
        self.answer = method.response.DESCRIPTOR
        self.listed = self._listed()
        self.is_run = self.answer.full_name == "raftsched.v1.Run"

    def lines(self) -> Iterator[str]:
        if self.call.kind in ("create", "update", "put"):
            yield from self._of_a_resource()
            return
        placed, named = self._parameters()
        parts = ["self", *map(str, placed)]
        lists = self.listed and self.call.kind != "count"
        named_parts = [*map(str, named), *(["limit: int | None = None"] if lists else [])]
        parts += ["*", *named_parts] if named_parts else []
        parts.append(f"**options: Unpack[{self._options()}]")
        runs = lists and self.listed.message_type.full_name == "raftsched.v1.Run"
        way = "" if lists else "async "
        yield f"{way}def {self.call.name}({', '.join(parts)}) -> {self._returned()}:"
        yield from self._doc()
        given = [f"{one.field.name}={one.value}" for one in (*placed, *named)]
        kind = _python(self.method.request.DESCRIPTOR)
        made = f"made({kind}, {', '.join(given)})" if given else f"{kind}()"
        yield f"    request = {made}"
        if self.call.lost:
            yield from self._with_secret("options")
        else:
            yield f"    {self._sent(bool(runs))}"

    def _with_secret(self, options: str) -> Iterator[str]:
        """What is to be said where the secret was lost has the parameters in it."""
        pieces = textwrap.wrap(self.call.lost.strip(), WIDTH - 10, drop_whitespace=False)
        yield "    lost = ("
        yield from (f"        {'f' * ('{' in piece)}{json.dumps(piece)}" for piece in pieces)
        yield "    )"
        yield (
            f"    return await self._with_secret(request, {_python(self.answer)}, lost, {options})"
        )

    def _sent(self, runs: bool) -> str:
        names = set(self.answer.fields_by_name)
        if self.call.kind == "count":
            return "return await self._count(request, options)"
        if runs:
            return "return self._runs(request, limit, options)"
        if self.listed:
            return f'return self._items(request, "{self.listed.name}", limit, options)'
        if self.answer.name == "BulkChange":
            return "return await self._change_all(request, options)"
        if "more" in names:
            counted = self.answer.fields[0].name
            return f'return await self._sum(request, {_python(self.answer)}, "{counted}", options)'
        if self.is_run:
            return "return await self._run(request, options)"
        sent = f"await self._send(request, {_python(self.answer)}, options)"
        return f"return {sent}" if names else sent

    def _returned(self) -> str:
        names = set(self.answer.fields_by_name)
        if self.call.kind == "count":
            return "ListCount"
        if self.listed:
            item = self.listed.message_type
            kind = "AsyncRun" if item.name == "Run" else _python(item)
            return f"AsyncIterator[{kind}]"
        if "more" in names:
            return "int"
        if self.is_run:
            return "AsyncRun"
        return _python(self.answer) if names else "None"

    def _listed(self) -> Any:  # noqa: ANN401  # A field.
        """The field with the items, where the answer is a page of a list."""
        if "page_token" not in self.fields or self.answer.name == "BulkChange":
            return None
        [found] = [f for f in self.answer.fields if f.is_repeated and f.message_type is not None]
        return found

    def _options(self) -> str:
        if "request_id" in self.fields:
            return "Writing"
        return "ReadOptions" if "read" in self.fields else "EachCall"

    def _parameters(self) -> tuple[list[_Parameter], list[_Parameter]]:
        """Those that may be given by place, and those by name alone."""
        longer = {short: name for name, short in SHORTER.items()}
        placed = list[_Parameter]()
        for part in filter(None, self.call.takes.split(", ")):
            name, _, field = part.removesuffix("=").partition(":")
            field = field or (name if name in self.fields else longer[name])
            placed.append(_Parameter(self.fields[field], name, part.endswith("=")))
        taken = BY_OPTIONS | {one.field.name for one in placed}
        if self.call.kind == "count":
            taken |= {"order_by"}
        named = [
            _Parameter(field, SHORTER.get(name, name), True)
            for name, field in self.fields.items()
            if name not in taken
        ]
        return placed, named

    def _of_a_resource(self) -> Iterator[str]:
        """It is said by options, and made of them."""
        build, new, change = RESOURCES[self.service.options]
        options = change if self.call.kind == "update" else new
        request, answer = self.method.request.DESCRIPTOR, self.answer
        name, *others = self.call.takes.split(", ")
        needed = [one for one in others if one in NEEDED]
        beside = [
            _Parameter(self.fields[one.removesuffix("=")], one.removesuffix("="), one[-1] == "=")
            for one in others if one not in NEEDED
        ]  # fmt: skip
        parts = [f"{name}: str", *(f"{one}: {NEEDED[one]}" for one in needed), *map(str, beside)]
        parts += ["*", 'etag: str = ""'] if self.call.kind == "update" else []
        parts.append(f"**options: Unpack[{options}]")
        yield f"async def {self.call.name}(self, {', '.join(parts)}) -> {_python(answer)}:"
        yield from self._doc()
        paths = "paths" if self.call.kind == "update" else "_"
        yield "    given, writing = parted(options)"
        needs = "".join(f'"{one}": {one}, ' for one in needed)
        sources = f"{{{needs}**given}}" if needs else "given"
        yield f"    wanted, {paths} = {build}({name}, self._namespace(writing), {sources})"
        if self.call.kind == "update":
            yield "    if not paths:"
            yield f'        raise ValueError(f"no field is named to change of {{{name}!r}}")'
            yield "    wanted.etag = etag"
        [held] = [f.name for f in request.fields if f.message_type and _is_ours(f.message_type)]
        # Not by `made`, which shows a value that is wrong: this one may be a secret.
        given = "".join(f", {one.field.name}={one.value}" for one in beside)
        yield f"    request = {_python(request)}({held}=wanted{given})"
        if self.call.kind == "update":
            yield "    request.update_mask.paths.extend(paths)"
        if self.call.lost:
            yield from self._with_secret("writing")
        else:
            yield f"    return await self._send(request, {_python(answer)}, writing)"

    def _doc(self) -> Iterator[str]:
        name = f"{self.method.service}.{self.method.verb}"
        text = self.call.doc or re.sub(r"\s*(Refused|Ended) with .*", "", comment(name), flags=re.S)
        wrapped = textwrap.wrap(f'"""{text}', WIDTH, break_on_hyphens=False)
        yield from (f"    {line}" for line in wrapped)
        yield ""
        yield from (f"    {line}" for line in self.call.example.splitlines())
        yield '    """'
