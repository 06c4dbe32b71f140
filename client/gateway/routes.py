"""Which call a path means: one table, made from the google.api.http annotations of the contracts.

Templates are literals and `{field}` or `{field.below}`, each one segment, perhaps with `:verb` at
the end. A value may hold any character, percent-encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote

from google.api import annotations_pb2, http_pb2

from ...proto.contract import Method, methods

VERBS = ("get", "put", "post", "delete", "patch")


@dataclass(frozen=True, slots=True)
class Binding:
    """One way to say a call over HTTP."""

    call: Method
    # "GET", and so on.
    verb: str
    template: str
    # The field that the body holds, "*" for all that are not in the path, or none.
    body: str
    # Request and answer are in the short form of plain.py.
    plain: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """The paths of the fields that stand in the path, from left to right."""
        return _variables(self.template)


@dataclass(frozen=True, slots=True)
class Route:
    """A path, with a call for each method of HTTP."""

    # None where a value stands: its name may differ from method to method.
    segments: tuple[str | None, ...]
    bindings: dict[str, Binding]

    @property
    def allow(self) -> str:
        """As the header `Allow` has it; HEAD is GET without the body."""
        verbs = [*self.bindings, *(["HEAD"] if "GET" in self.bindings else [])]
        return ", ".join(sorted(verbs))

    def match(self, segments: list[str]) -> list[str] | None:
        """The values in a path, or None if this is another one."""
        values = []
        for own, given in zip(self.segments, segments, strict=True):
            if own is None and given:
                values.append(unquote(given, errors="strict"))
            elif own != given:
                return None
        return values


class Routes:
    """All paths."""

    def __init__(self, bindings: Iterable[Binding]) -> None:
        # By the number of segments and the word behind the colon.
        self._routes: dict[tuple[int, str], list[Route]] = {}
        for binding in bindings:
            self._add(binding)
        for routes in self._routes.values():
            # A literal goes before a variable in the same place.
            routes.sort(key=lambda route: [one is None for one in route.segments])

    def _add(self, binding: Binding) -> None:
        segments, word = _split(binding.template)
        if any(("{" in one) != (one[:1] == "{" and one[-1:] == "}") for one in segments):
            raise ValueError(f"{binding.template} of {binding.call.name} is no template for this")
        same = self._routes.setdefault((len(segments), word), [])
        shape = tuple(None if one[:1] == "{" else one for one in segments)
        route = next((one for one in same if one.segments == shape), None)
        if route is None:
            same.append(Route(shape, {binding.verb: binding}))
        elif binding.verb in route.bindings:
            raise ValueError(f"two calls are {binding.verb} {binding.template}")
        else:
            route.bindings[binding.verb] = binding

    def find(self, path: str) -> tuple[Route, list[str]] | None:
        """The route of a path as it was sent, and the values in it; ValueError if it is no text."""
        segments, word = _split(path)
        for route in self._routes.get((len(segments), word), ()):
            values = route.match(segments)
            if values is not None:
                return route, values
        return None

    def __iter__(self) -> Iterator[Binding]:
        for routes in self._routes.values():
            for route in routes:
                yield from route.bindings.values()


@cache
def _variables(template: str) -> tuple[str, ...]:
    segments, _ = _split(template)
    return tuple(one[1:-1] for one in segments if one[:1] == "{")


def _split(path: str) -> tuple[list[str], str]:
    segments = path.split("/")
    segments[-1], _, word = segments[-1].partition(":")
    return segments, word


def bindings_of_contracts() -> Iterator[Binding]:
    """All ways that the contracts name."""
    for method in methods():
        yield from bindings_of(method)


def bindings_of(method: Method) -> Iterator[Binding]:
    """The annotation of a call, with its additional bindings; none for a call that has none."""
    if method.streams_in:
        return
    file = method.request.DESCRIPTOR.file
    service = file.services_by_name[method.service.rpartition(".")[2]]
    options = service.methods_by_name[method.verb].GetOptions()
    if options.HasExtension(annotations_pb2.http):
        rule = options.Extensions[annotations_pb2.http]
        for one in (rule, *rule.additional_bindings):
            yield _binding(method, one)


def _binding(method: Method, rule: http_pb2.HttpRule) -> Binding:
    verb = rule.WhichOneof("pattern") or ""
    if verb not in VERBS:
        raise ValueError(f"{method.name} has a pattern of HTTP that is not known: {verb!r}")
    return Binding(method, verb.upper(), getattr(rule, verb), rule.body)
