"""The conventions of proto/v1, held by machine. A failure names file, thing and rule.

protoc compiles the .proto files as they stand, comments included, so a rule can look at what a
comment promises as well as at what a descriptor holds. A rule that knows exceptions lists them by
name, each with its reason.
"""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from google.api import annotations_pb2, http_pb2
from google.protobuf import descriptor_pb2 as pb
from grpc_tools import protoc

from raftsched.client.calls.generate import made, stale
from raftsched.proto.contract import Named, Repeat, Role, Scope
from raftsched.proto.v1 import options_pb2

from ..rows import each

V1 = Path(__file__).parents[2] / "proto" / "v1"

# The first words of the names of calls that change nothing.
READS = {
    "Audit", "Backup", "Explain", "Forecast", "Get", "List", "Preview", "Wait", "Watch", "Who",
}  # fmt: skip
# Takes a request_id, but to lease nothing on trial would tell nobody anything.
NO_REHEARSAL = {"Lease"}
# Its pages go by revision, which unlike a page token never goes stale.
PAGED_OTHERWISE = {"ListEvents"}
# Streams of frames or of raw bytes: HTTP clients have unary calls, or the command line. Values of
# secrets are for workers alone.
WITHOUT_ROUTE = {"Work", "Backup", "ResolveSecrets"}
# Reads that do not choose how fresh: one node speaks for itself; sessions are in the leader's
# memory; what waits or follows is fresh by its nature.
FRESH_ANYWAY = {
    "Backup", "GetClusterStatus", "GetFigures", "ListEvents", "ListWorkers", "WaitRun",
    "WatchEvents", "WhoAmI",
}  # fmt: skip
# Reads that send more than a query can carry.
READS_BY_POST = {"PreviewSchedule"}
# Words that say by themselves that they are an instant.
INSTANTS = {
    "anchor", "comparable_since", "deadline", "missing", "leader_since", "lease_deadline",
    "moved_to", "pause_until", "until",
}  # fmt: skip
# An instant as text, for people.
WALL_CLOCKS = {"local_time"}
GRPC_CODES = {
    "ABORTED", "ALREADY_EXISTS", "DEADLINE_EXCEEDED", "FAILED_PRECONDITION", "INTERNAL",
    "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED", "UNAVAILABLE",
}  # fmt: skip
# Words in capitals that are not values of an enum.
CAPITALS = {
    "AND", "API", "ASCII", "DELETE", "ERROR_REASON_", "GET", "HTTP", "IANA", "JSON", "JWK", "JWT",
    "LAPSED", "NAME", "NOT", "OR", "PATCH", "POST", "PUT", "SECRET", "SIGTERM", "TAKEN_OVER",
    "UNKNOWN", "URI", "UTC", "UTF", "UUID",
}  # fmt: skip
NAMES = (
    ("namespace", Named.NAMED_NAMESPACE), ("run", Named.NAMED_RUN), ("worker", Named.NAMED_WORKER),
)  # fmt: skip
NAMED = {Scope.SCOPE_DEFAULT, Scope.SCOPE_CLUSTER, Scope.SCOPE_VISIBLE}
COLUMNS_MAX = 100
TIMESTAMP, DURATION = ".google.protobuf.Timestamp", ".google.protobuf.Duration"
ROOT_OF_OURS = "raftsched/v1/"

Field = pb.FieldDescriptorProto


@dataclass(frozen=True, slots=True)
class Call:
    """One RPC, with what its file says around it."""

    file: str
    proto: pb.MethodDescriptorProto
    comment: str

    def __str__(self) -> str:
        return f"{self.file}: {self.proto.name}"

    @property
    def name(self) -> str:
        return self.proto.name

    @property
    def rules(self) -> options_pb2.CallRules:
        return self.proto.options.Extensions[options_pb2.call]

    @property
    def is_read(self) -> bool:
        return self.rules.repeat == Repeat.REPEAT_HARMLESS

    @property
    def routes(self) -> list[http_pb2.HttpRule]:
        rule = self.proto.options.Extensions[annotations_pb2.http]
        return [rule, *rule.additional_bindings] if rule.WhichOneof("pattern") else []


@dataclass(frozen=True, slots=True, repr=False)
class Contracts:
    """All files, compiled."""

    texts: dict[str, str]
    files: dict[str, pb.FileDescriptorProto]

    def messages(self) -> Iterator[tuple[str, str, pb.DescriptorProto]]:
        """Yield file, full name and descriptor of each message, nested ones included."""
        for file, proto in self.files.items():
            todo = [(f".{proto.package}.{message.name}", message) for message in proto.message_type]
            while todo:
                name, message = todo.pop()
                yield file, name, message
                todo += [(f"{name}.{nested.name}", nested) for nested in message.nested_type]

    def message(self, name: str) -> pb.DescriptorProto:
        return {name: message for _, name, message in self.messages()}[name]

    def enums(self) -> Iterator[tuple[str, pb.EnumDescriptorProto]]:
        for file, proto in self.files.items():
            yield from ((file, enum) for enum in proto.enum_type)
        for file, _, message in self.messages():
            yield from ((file, enum) for enum in message.enum_type)

    def calls(self) -> Iterator[Call]:
        for file, proto in self.files.items():
            said = dict(comments(proto))
            for s, service in enumerate(proto.service):
                for m, method in enumerate(service.method):
                    yield Call(file, method, said[6, s, 2, m])

    def reasons(self) -> list[str]:
        values = self.files["error.proto"].enum_type[0].value
        return [value.name.removeprefix("ERROR_REASON_") for value in values[1:]]


def comments(file: pb.FileDescriptorProto) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield path and comment of everything in a file, the comment in one line."""
    for place in file.source_code_info.location:
        said = [*place.leading_detached_comments, place.leading_comments]
        yield tuple(place.path), " ".join(" ".join(said).split())


def compiled(
    folder: Path, texts: dict[str, str], *beside: Path
) -> dict[str, pb.FileDescriptorProto]:
    """Descriptors of these files; what they import, and is not among them, is beside them."""
    root = folder / ROOT_OF_OURS
    root.mkdir(parents=True)
    for name, text in texts.items():
        (root / name).write_text(text)
    site = metadata.distribution("googleapis-common-protos").locate_file(".")
    command = ["protoc", *(f"-I{path}" for path in (folder, *beside, site))]
    command += [f"-I{Path(protoc.__file__).parent}/_proto"]
    command += ["--include_source_info", f"--descriptor_set_out={folder}/set"]
    assert protoc.main([*command, *(f"{ROOT_OF_OURS}{name}" for name in texts)]) == 0
    found = pb.FileDescriptorSet.FromString((folder / "set").read_bytes())
    files = {file.name.removeprefix(ROOT_OF_OURS): file for file in found.file}
    return {name: files[name] for name in texts}


@cache
def texts() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(V1.glob("*.proto"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("protoc")


@pytest.fixture(scope="module")
def contracts(folder: Path) -> Contracts:
    return Contracts(texts(), compiled(folder, texts()))


def fields(message: pb.DescriptorProto) -> dict[str, Field]:
    return {field.name: field for field in message.field}


# What a caller may rely on in every call.


def unsafe_writes(api: Contracts) -> Iterator[str]:
    for call in api.calls():
        # A rehearsal of work that was done already would mean nothing.
        if call.rules.repeat != Repeat.REPEAT_BY_REQUEST_ID:
            continue
        request = fields(api.message(call.proto.input_type))
        if "request_id" not in request or request["request_id"].type != Field.TYPE_STRING:
            yield f"{call} needs a request_id, so that it can be repeated"
        if "validate_only" not in request and call.name not in NO_REHEARSAL:
            yield f"{call} needs validate_only"


def unguarded_updates(api: Contracts) -> Iterator[str]:
    resources = {name: message for _, name, message in api.messages()}
    for call in api.calls():
        verb = re.match("Update|Put|Delete", call.name)
        resource = resources.get(f".raftsched.v1.{call.name[verb.end() :]}") if verb else None
        if not verb or resource is None:
            continue
        request = fields(api.message(call.proto.input_type))
        if "etag" not in (request if verb[0] == "Delete" else fields(resource)):
            yield f"{call} needs an etag"
        if verb[0] == "Update" and "update_mask" not in request:
            yield f"{call} needs an update_mask"
        if "ETAG_MISMATCH" not in call.comment:
            yield f"{call} does not say ETAG_MISMATCH"


def endless_lists(api: Contracts) -> Iterator[str]:
    for call in api.calls():
        if not call.name.startswith("List") or call.name in PAGED_OTHERWISE:
            continue
        request = fields(api.message(call.proto.input_type))
        response = fields(api.message(call.proto.output_type))
        for wanted in {"page_size", "page_token"} - request.keys():
            yield f"{call} needs {wanted}"
        if "next_page_token" not in response or call.proto.server_streaming:
            yield f"{call} must answer with a page and its next_page_token"
        if "PAGE_TOKEN_INVALID" not in call.comment:
            yield f"{call} does not say PAGE_TOKEN_INVALID"
        if ("filter" in request) != ("FILTER_INVALID" in call.comment):
            yield f"{call} must say FILTER_INVALID if it has a filter, and only then"


def stale_reads(api: Contracts) -> Iterator[str]:
    for call in api.calls():
        request = fields(api.message(call.proto.input_type))
        if call.is_read and call.name not in FRESH_ANYWAY and "read" not in request:
            yield f"{call} does not let the caller say how fresh (ReadOptions)"


def odd_types(api: Contracts) -> Iterator[str]:
    for call in api.calls():
        answer = call.proto.output_type.split(".")[-1]
        if call.proto.input_type != f".raftsched.v1.{call.name}Request":
            yield f"{call} must take {call.name}Request"
        if answer.endswith("Response") and answer != f"{call.name}Response":
            yield f"{call} must answer with {call.name}Response or with a resource"


# What the options say.


def unruled_calls(api: Contracts) -> Iterator[str]:
    """A call without them would be open to nobody, and nobody would know whether to repeat it."""
    for call in api.calls():
        rules = call.rules
        for option, said in (
            ("needs: ROLE_...", rules.needs),
            ("scope: SCOPE_...", rules.scope),
            ("repeat: REPEAT_...", rules.repeat),
        ):
            if not said:
                yield f"{call}: write `option (call) = {{{option}}}`; options.proto says which"


def untrue_rules(api: Contracts) -> Iterator[str]:
    """What a request holds must fit to what is said of the call."""
    for call in api.calls():
        rules, request = call.rules, fields(api.message(call.proto.input_type))
        if (re.findall("[A-Z][a-z]*", call.name)[0] in READS) != call.is_read:
            yield f"{call}: calls that are REPEAT_HARMLESS, and no others, begin with one of READS"
        if ("request_id" in request) != (rules.repeat == Repeat.REPEAT_BY_REQUEST_ID):
            yield f"{call}: it has a request_id if it is REPEAT_BY_REQUEST_ID, and only then"
        named = any(names_namespace(api, field) for field in request.values())
        if named != (rules.scope in NAMED) and rules.scope != Scope.SCOPE_ALL:
            yield f"{call}: its scope says whether it names a namespace, which is {named} here"
        of_work = bool(request.keys() & {"run", "worker"})
        if rules.scope == Scope.SCOPE_OF_WORK and not of_work:
            yield f"{call}: it is SCOPE_OF_WORK and names neither a run nor a worker"
        if rules.heartbeat and rules.needs != Role.ROLE_WORKER:
            yield f"{call}: what counts as a heartbeat needs ROLE_WORKER"
        if rules.longest.seconds and not rules.slow:
            yield f"{call}: what may take longer than others is slow"


def unmarked_names(api: Contracts) -> Iterator[str]:
    """What a token for one namespace is held against is found by an option, not by its name."""
    for call in api.calls():
        marks = dict(NAMES if call.rules.scope == Scope.SCOPE_OF_WORK else NAMES[:1])
        request = api.message(call.proto.input_type)
        inner = {f.type_name for f in request.field if f.type == Field.TYPE_MESSAGE}
        ours = (api.message(name) for name in inner if name.startswith(".raftsched."))
        for message in (request, *ours):
            for field in message.field:
                mark = marks.get(field.name, Named.NAMED_UNSPECIFIED)
                found = field.options.Extensions[options_pb2.names]
                if field.type == Field.TYPE_STRING and mark and found != mark:
                    yield f"{call}: {message.name}.{field.name} needs (names) = {Named.Name(mark)}"


def unlike_scopes(api: Contracts) -> Iterator[str]:
    """What the comment at a namespace says of an empty one."""
    said = {}
    for name, file in api.files.items():
        found = dict(comments(file))
        for number, message in enumerate(file.message_type):
            for position, field in enumerate(message.field):
                if field.name == "namespace" and (text := found[4, number, 2, position]):
                    said[f".raftsched.v1.{message.name}"] = f"{name}: {message.name}", text
    for call in api.calls():
        request = api.message(call.proto.input_type)
        for name in [call.proto.input_type, *(field.type_name for field in request.field)]:
            place, text = said.get(name, ("", ""))
            means = Scope.SCOPE_CLUSTER if "cluster's" in text else Scope.SCOPE_DEFAULT
            means = Scope.SCOPE_VISIBLE if "may see" in text else means
            if place and call.rules.scope not in (means, Scope.SCOPE_ALL):
                yield f"{place} says another thing of an empty namespace than {call.name}"


def names_namespace(api: Contracts, field: Field) -> bool:
    if field.type != Field.TYPE_MESSAGE or not field.type_name.startswith(".raftsched."):
        return field.name == "namespace"
    return bool(fields(api.message(field.type_name)).keys() & {"namespace", "namespaces"})


# Routes.


def missing_routes(api: Contracts) -> Iterator[str]:
    for call in api.calls():
        if bool(call.routes) == (call.name in WITHOUT_ROUTE):
            yield f"{call} must have a route by HTTP, or stand in WITHOUT_ROUTE and have none"


def path_of(route: http_pb2.HttpRule) -> str:
    return str(getattr(route, route.WhichOneof("pattern") or ""))


def ambiguous_routes(api: Contracts) -> Iterator[str]:
    """Two routes clash if one path could be both. A name holds no `:`, so a verb is a part."""
    routes = [(call, route) for call in api.calls() for route in call.routes]
    for (call, one), (other, two) in itertools.combinations(routes, 2):
        a, b = re.split("[/:]", path_of(one)), re.split("[/:]", path_of(two))
        shapes = [re.sub("[^/:]+", "x", path_of(route)) for route in (one, two)]
        same = all("{" in x + y or x == y for x, y in zip(a, b, strict=False))
        if one.WhichOneof("pattern") == two.WhichOneof("pattern") and same and len(set(shapes)) < 2:
            yield f"{call}: {path_of(one)} can be taken for {path_of(two)} of {other.name}"


def unfit_routes(api: Contracts) -> Iterator[str]:
    for call in api.calls():
        request = api.message(call.proto.input_type)
        for number, route in enumerate(call.routes):
            method, path = route.WhichOneof("pattern"), path_of(route)
            named = re.findall(r"\{([^}]*)\}", path)
            yield from (
                f"{call}: {path}: there is no text field {name}"
                for name in named
                if not is_text(api, request, name.split("."))
            )
            if not path.startswith("/v1/"):
                yield f"{call}: {path} must begin with /v1/"
            if (method == "get") != call.is_read and call.name not in READS_BY_POST:
                yield f"{call}: a read goes by GET, a write by anything else"
            if (method in {"get", "delete"}) == bool(route.body):
                yield f"{call}: {method} {path} must {'have no' if route.body else 'have a'} body"
            if route.body not in {"", "*", *fields(request)}:
                yield f"{call}: {path}: there is no field {route.body} to be the body"
            # An additional route may leave out what a query cannot carry; the first may not.
            if not number and route.body != "*":
                yield from (
                    f"{call}: {field.name} cannot travel in a query"
                    for field in request.field
                    if field.name != route.body
                    and field.label == Field.LABEL_REPEATED
                    and field.type == Field.TYPE_MESSAGE
                )


def is_text(api: Contracts, message: pb.DescriptorProto, names: list[str]) -> bool:
    field = fields(message).get(names[0])
    if field is None or len(names) == 1:
        return field is not None and field.type == Field.TYPE_STRING
    return is_text(api, api.message(field.type_name), names[1:])


# Words.


def unmarked_enums(api: Contracts) -> Iterator[str]:
    for file, enum in api.enums():
        prefix = re.sub(r"(?<!^)([A-Z])", r"_\1", enum.name).upper() + "_"
        if enum.value[0].name != f"{prefix}UNSPECIFIED" or enum.value[0].number:
            yield f"{file}: {enum.name} must begin with {prefix}UNSPECIFIED = 0"
        yield from (
            f"{file}: {value.name} must begin with {prefix}"
            for value in enum.value
            if not value.name.startswith(prefix)
        )


def misnamed_times(api: Contracts) -> Iterator[str]:
    for file, name, message in api.messages():
        for field in message.field:
            place = f"{file}: {name.removeprefix('.raftsched.v1.')}.{field.name}"
            says_time = field.name == "time" or field.name.endswith("_time")
            if field.type_name == TIMESTAMP and not says_time and field.name not in INSTANTS:
                yield f"{place} is an instant and must end in _time"
            if field.name in WALL_CLOCKS:
                continue
            if field.type_name != TIMESTAMP and (says_time or field.name in INSTANTS):
                yield f"{place} sounds like an instant and is none"
            if re.search("_(ms|millis|seconds|secs|at)$", field.name):
                yield f"{place} must be a Timestamp or a Duration"


def silent_refusals(api: Contracts) -> Iterator[str]:
    for call in api.calls():
        if "Refused" not in call.comment:
            yield f"{call} does not say what it is refused with"


def unknown_refusals(api: Contracts) -> Iterator[str]:
    for call in api.calls():
        without_asides = re.sub(r"\([^()]*\)", "", call.comment)
        for sentence in re.findall(r"Refused[^.]*", without_asides):
            for word in set(re.findall(r"\b[A-Z][A-Z_]{2,}\b", sentence)) - {*api.reasons()}:
                yield f"{call} is refused with {word}, which is no ErrorReason"


def unused_reasons(api: Contracts) -> Iterator[str]:
    elsewhere = " ".join(api.texts[name] for name in api.files if name != "error.proto")
    for reason in api.reasons():
        if not re.search(rf"\b{reason}\b", elsewhere):
            yield f"error.proto: no call mentions {reason}"


def unruled_reasons(api: Contracts) -> Iterator[str]:
    """Code and outcome are said by the option; words beside it could say something else."""
    file = api.files["error.proto"]
    said = dict(comments(file))
    for number, value in enumerate(file.enum_type[0].value[1:], start=1):
        rules = value.options.Extensions[options_pb2.refusal]
        if not (rules.code and rules.next):
            yield f"error.proto: {value.name} needs [(refusal) = {{code: ..., next: NEXT_...}}]"
        text = said[5, 0, 2, number]
        for word in (GRPC_CODES & set(re.findall("[A-Z_]+", text))) - {*api.reasons()}:
            yield f"error.proto: {value.name}: its option says the code, not its comment ({word})"
        if re.search("not done|outcome unknown|RetryInfo", text, re.IGNORECASE):
            yield f"error.proto: {value.name}: its option says whether it was done, and RetryInfo"


def unknown_capitals(api: Contracts) -> Iterator[str]:
    """A word in capitals is a value of an enum, so that nobody looks for what is not there.
    Variables of the environment begin with the product's name, or are those of W3C."""
    known = GRPC_CODES | CAPITALS
    for _, enum in api.enums():
        prefix = enum.value[0].name.removesuffix("UNSPECIFIED")
        known |= {v.name for v in enum.value} | {v.name.removeprefix(prefix) for v in enum.value}
    for name, file in api.files.items():
        for word in {w for _, c in comments(file) for w in re.findall(r"\b[A-Z][A-Z_]{2,}\b", c)}:
            if word not in known and not word.startswith(("RAFTSCHED_", "TRACE")):
                yield f"{name}: {word} is no value of any enum"


def uncommented_things(api: Contracts) -> Iterator[str]:
    # Where things that need a comment are in a file's tree: see descriptor.proto.
    kinds = re.compile(
        r"(4 \d+ (3 \d+ )*(2 \d+ |8 \d+ |4 \d+ (2 \d+ )?)?|5 \d+ (2 \d+ )?|6 \d+ (2 \d+ )?)"
    )
    for name, file in api.files.items():
        for place in file.source_code_info.location:
            path = "".join(f"{part} " for part in place.path)
            if kinds.fullmatch(path) and not place.leading_comments.strip():
                yield f"{name}:{place.span[0] + 1}: needs a comment"


def wide_lines(api: Contracts) -> Iterator[str]:
    for name, text in api.texts.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if len(line) > COLUMNS_MAX:
                yield f"{name}:{number}: is longer than {COLUMNS_MAX} columns"


Rule = Callable[[Contracts], Iterator[str]]
RULES: list[Rule] = [
    unsafe_writes, unguarded_updates, endless_lists, stale_reads, odd_types, missing_routes,
    ambiguous_routes, unfit_routes, unmarked_enums, misnamed_times,
    silent_refusals, unknown_refusals, unused_reasons, unruled_reasons, unruled_calls,
    untrue_rules, unmarked_names, unlike_scopes, unknown_capitals, uncommented_things, wide_lines,
]  # fmt: skip


@each("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_contracts_keep(rule: Rule, contracts: Contracts) -> None:
    assert list(rule(contracts)) == []


# Each rule, shown to bite: (rule, file, what stands there, what is planted, what the rule says).
PLANTED: list[tuple[Rule, str, str, str, str]] = [
    (unsafe_writes, "queue.proto", "string request_id = 4;", "string x = 4;", "PauseQueue needs a"),
    (unsafe_writes, "queue.proto", "bool validate_only = 5;", "bool x = 5;", "validate_only"),
    (unsafe_writes, "worker.proto", "string request_id = 4;", "string x = 4;", "Lease needs a"),
    (unguarded_updates, "alert.proto", "string etag = 7;", "string x = 7;", "PutAlert needs an"),
    (unguarded_updates, "job.proto", "update_mask = 2;", "x = 2;", "UpdateJob needs an update"),
    (unguarded_updates, "calendar.proto", "string etag = 5;", "string x = 5;", "DeleteCalendar"),
    (unguarded_updates, "alert.proto", "ETAG_MISMATCH", "ALERT_NOT_FOUND", "PutAlert does not say"),
    (endless_lists, "flow.proto", "string page_token", "string x", "ListFlows needs page_token"),
    (endless_lists, "queue.proto", "string next_page_token", "string x", "ListQueues must answer"),
    (endless_lists, "alert.proto", "PAGE_TOKEN_INVALID", "FIELD_INVALID", "ListAlerts does not"),
    (endless_lists, "flow.proto", "FILTER_INVALID", "FIELD_INVALID", "ListFlows must say FILTER"),
    (stale_reads, "flow.proto", "ReadOptions read = 5;", "bool x = 5;", "ListFlows does not let"),
    (odd_types, "flow.proto", "GetGraph(GetGraphRequest)", "GetGraph(GetFlowRequest)", "must take"),
    (odd_types, "flow.proto", "returns (Graph)", "returns (ListFlowsResponse)", "must answer"),
    (missing_routes, "run.proto", 'option (google.api.http) = {get: "/v1/runs"};', "", "ListRuns"),
    (ambiguous_routes, "flow.proto", "/v1/jobs/{job}/graph", "/v1/jobs/{job}/next", "GetGraph: "),
    (ambiguous_routes, "flow.proto", "{job}/graph", "{all}/{job}", "GetGraph: /v1/jobs/{all}/"),
    (ambiguous_routes, "run.proto", "/v1/runs/{run}:wait", "/v1/runs/{id}", "of WaitRun"),
    (unfit_routes, "run.proto", "{run}:wait", "{id}:wait", "there is no text field id"),
    (unfit_routes, "job.proto", "/{job.name}", "/{job.uid}", "there is no text field job.uid"),
    (unfit_routes, "job.proto", "/v1/forecast", "/forecast", "must begin with /v1/"),
    (unfit_routes, "job.proto", 'body: "job"', 'body: "it"', "there is no field it"),
    (unfit_routes, "job.proto", '{get: "/v1/forecast"', '{put: "/v1/forecast"', "a read goes by"),
    (unfit_routes, "job.proto", '{get: "/v1/forecast"', '{put: "/v1/forecast"', "must have a body"),
    (unfit_routes, "flow.proto", "string filter = 2;", "repeated Flow filter = 2;", "in a query"),
    (unmarked_enums, "run.proto", "CAUSE_UNSPECIFIED", "CAUSE_NONE", "Cause must begin with"),
    (unmarked_enums, "run.proto", "CAUSE_TRIGGER", "BY_TRIGGER", "must begin with CAUSE_"),
    (misnamed_times, "flow.proto", "Timestamp end_time", "Timestamp ended", "Flow.ended is an"),
    (misnamed_times, "run.proto", "Duration hold =", "Duration hold_time =", "hold_time sounds"),
    (misnamed_times, "run.proto", "int64 total = 2", "int64 left_ms = 2", "left_ms must be a Time"),
    (silent_refusals, "flow.proto", "Refused with FLOW_NOT_FOUND.", "", "GetFlow does not say"),
    (unknown_refusals, "flow.proto", "with FLOW_NOT_FOUND", "with NOT_FOUND", "with NOT_FOUND, w"),
    (unused_reasons, "flow.proto", "Refused with FLOW_NOT_FOUND.", "", "mentions FLOW_NOT_FOUND"),
    (unruled_reasons, "error.proto", "{code: NOT_FOUND, next: NEXT_CHANGE}", "{}", "NEXT_...}]"),
    (unruled_reasons, "error.proto", "no such occurrence.", "none. OUT_OF_RANGE.", "says the code"),
    (unruled_reasons, "error.proto", "`scheduled_time`.", "`x`. Not done.", "whether it was done"),
    (unruled_calls, "flow.proto", "scope: SCOPE_DEFAULT, ", "", "write `option (call) = {scope"),
    (unruled_calls, "event.proto", "needs: ROLE_VIEWER", "local: false", "{needs: ROLE_...}`"),
    (untrue_rules, "flow.proto", "REPEAT_HARMLESS", "REPEAT_BY_TOKEN", "begin with one of READS"),
    (untrue_rules, "queue.proto", "BY_REQUEST_ID", "BY_TOKEN", "UpdateQueue: it has a request_id"),
    (untrue_rules, "flow.proto", "SCOPE_DEFAULT", "SCOPE_NONE", "names a namespace, which is True"),
    (unlike_scopes, "alert.proto", "; empty: the cluster's", "", "alert.proto: Alert says"),
    (unlike_scopes, "flow.proto", "SCOPE_DEFAULT", "SCOPE_VISIBLE", "GetFlowRequest says another"),
    (untrue_rules, "cluster.proto", "SCOPE_NONE", "SCOPE_DEFAULT", "which is False here"),
    (untrue_rules, "cluster.proto", "SCOPE_NONE", "SCOPE_OF_WORK", "neither a run nor a worker"),
    (untrue_rules, "flow.proto", "ROLE_VIEWER, ", "ROLE_VIEWER, heartbeat: true, ", "a heartbeat"),
    (untrue_rules, "cluster.proto", "      slow: true\n      longest", "      longest", "is slow"),
    (unmarked_names, "queue.proto", " [(names) = NAMED_NAMESPACE]", "", "needs (names) = "),
    (unmarked_names, "worker.proto", " [(names) = NAMED_RUN]", "", "run needs (names) = "),
    (unknown_capitals, "run.proto", "holds the lease, while RUNNING", "for BUSY", "BUSY is"),
    (uncommented_things, "flow.proto", "  // The job.\n", "", "needs a comment"),
    (uncommented_things, "flow.proto", "    // Runs are under way.\n", "", "needs a comment"),
    (uncommented_things, "flow.proto", "  // Show a flow run. Refused with FLOW_NOT_FOUND.\n", "",
     ":"),
    (wide_lines, "flow.proto", "// One dependency.", f"// {'One dependency. ' * 7}", "100 columns"),
]  # fmt: skip


@each(("rule", "file", "there", "planted", "said"), PLANTED)
def test_a_planted_violation_is_found(
    rule: Rule,
    file: str,
    there: str,
    planted: str,
    said: str,
    contracts: Contracts,
    folder: Path,
    tmp_path: Path,
) -> None:
    assert there in texts()[file]
    broken = {file: texts()[file].replace(there, planted, 1)}
    row = tmp_path / str(len([*tmp_path.iterdir()]))
    files = contracts.files | compiled(row, broken, folder)

    found = list(rule(Contracts(texts() | broken, files)))

    assert found
    assert any(said in line for line in found)


@each(
    "promised",
    [
        "post /v1/jobs", "get /v1/jobs/{}", "get /v1/jobs/{}/status", "get /v1/jobs/{}/history",
        "delete /v1/jobs/{}", "post /v1/jobs/{}:trigger", "get /v1/runs/{}", "get /v1/cluster",
    ],
)  # fmt: skip
def test_the_routes_people_were_told_exist(promised: str, contracts: Contracts) -> None:
    routes = [route for call in contracts.calls() for route in call.routes]

    assert promised in {
        f"{route.WhichOneof('pattern')} {re.sub('{.*?}', '{}', path_of(route))}" for route in routes
    }


@each("name", texts())
def test_the_generated_code_is_that_of_the_contracts(name: str, contracts: Contracts) -> None:
    module = importlib.import_module(f"raftsched.proto.v1.{name.removesuffix('.proto')}_pb2")
    written = pb.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)

    assert shape(written) == shape(contracts.files[name])


def test_the_typed_calls_are_those_of_the_contracts() -> None:
    assert stale(made()) == [], "run ./dev proto"


def shape(file: pb.FileDescriptorProto) -> str:
    """All that is on the wire; comments and derived JSON names are not in both."""
    bare = pb.FileDescriptorProto()
    bare.CopyFrom(file)
    bare.ClearField("source_code_info")
    return re.sub(r"\n *json_name: .*", "", str(bare))
