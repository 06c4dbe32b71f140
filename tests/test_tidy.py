"""The house rules a machine can hold. A failure names file, line and rule."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

from .rows import each

ROOT = Path(__file__).parent.parent

# Who may import whom. A package absent from a set is a package it must not know.
MAY_IMPORT: dict[str, set[str]] = {
    "proto": set(),
    "statemachine": {"proto"},
    # A cluster beside a client is started in one way, which knows the standard library alone.
    "client": {"proto", "cluster.local"},
    "cluster": {"proto", "statemachine"},
    "chaos": {"proto", "statemachine", "client", "cluster"},
}
# One door per dependency: the only files that may open it.
DOORS: dict[str, tuple[str, ...]] = {
    "pysyncobj": ("cluster/raft/", "chaos/sim/"),
    "rocksdict": ("statemachine/core/rocks_store.py",),
    "croniter": ("statemachine/schedule/cron.py",),
    # The harness recomputes scheduled times by itself, so as not to repeat a mistake of the rules.
    "zoneinfo": (
        "statemachine/schedule/zones.py",
        "chaos/real/jobs.py",
        "chaos/sim/reckoning.py",
    ),
    "click": ("client/cli/", "cluster/main.py", "chaos/commands/"),
    # Nodes serve probes by it, the gateway everything.
    "uvicorn": ("cluster/ops/probes.py", "client/gateway/server.py"),
    "starlette": ("cluster/ops/probes.py", "client/gateway/"),
    # Nothing of it is loaded where nobody wants spans; see proto/tracing.py.
    "opentelemetry": ("proto/otel_spans.py", "proto/span_queue.py"),
    "grpc": ("cluster/", "client/", "chaos/real/", "chaos/bench/"),
}
# The rules get time, chance and the world as arguments, or do without.
SHUT_TO_RULES = {
    "asyncio", "logging", "multiprocessing", "os", "pickle", "random", "secrets", "socket",
    "subprocess", "threading", "time", "uuid",
}  # fmt: skip
# Where a client starts a cluster beside it.
CLIENT_STARTS = ("client/dev/", "client/testing/")
# The exceptions: the store talks to a disk, and the benchmarks are programs around the rules.
RULES_RIM = (
    "statemachine/core/rocks_store.py",
    "statemachine/bench.py",
    "statemachine/bench_worst.py",
)
# Names that read the clock, wherever they come from.
CLOCK_CALLS = {"now", "utcnow", "today"}
LINES_PER_FUNCTION_MAX = 60
# One step after the other, of which each needs what those before it found.
LONG_FUNCTIONS = {"replace_spec"}
LINES_PER_FILE_MAX = 400
SHORT_FILES = ("cluster/", "chaos/", "client/")
# Packages in their order: each knows those before it, and files that are named count as packages.
# "" stands for what a folder itself offers by name. The files beside them know all.
ORDER = {
    "statemachine": (
        "core", "schedule", "model", "tenants", "occurrences", "runs", "flows", "firing", "calls",
        "reads", "selfcheck",
    ),
    "cluster": ("local", "raft", "node", "api", "ops"),
    "client": ("sdk", "calls", "worker", "app", "", "testing", "gateway", "dev", "cli"),
    "client/cli": (
        "messages", "times", "payloads", "render", "exits", "settings", "connectivity", "paste",
        "refused", "session", "lazy", "options", "names", "input", "commands",
    ),
}  # fmt: skip

# Inside a package of the cluster, how many files the longest chain of imports has: a part names the
# types of the parts that it is given (cluster/DESIGN.md). Each number may only become smaller.
CHAIN_MAX = {
    "cluster/local": 2, "cluster/raft": 13, "cluster/node": 12, "cluster/api": 7, "cluster/ops": 4,
}  # fmt: skip

# Classes that bear the name of another one: the two ends of one protocol, a record of the rules and
# what the SDK shows of it.
TWO_ENDS: set[str] = {"FieldFault", "Run", "Worker"}

Source = tuple[str, str, ast.Module]


@cache
def sources() -> tuple[Source, ...]:
    gc.disable()  # It would look at all trees again and again, which takes three times as long.
    try:
        return tuple(
            (package, name, ast.parse(path.read_text(), filename=name))
            for package in MAY_IMPORT
            for path in sorted((ROOT / package).rglob("*.py"))
            for name in [path.relative_to(ROOT).as_posix()]
            if "_pb2" not in name and name != "proto/generate.py"
        )
    finally:
        gc.enable()


# A third of all nodes, which no rule looks at.
SIGNS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop)


@cache
def by_kind(tree: ast.Module) -> dict[type, list[ast.AST]]:
    """All nodes; `ast.walk` for each rule would take three times as long."""
    found: dict[type, list[ast.AST]] = {}
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        found.setdefault(type(node), []).append(node)
        for value in node.__dict__.values():
            if isinstance(value, ast.AST):
                if not isinstance(value, SIGNS):
                    left.append(value)
            elif isinstance(value, list):
                left += [one for one in value if isinstance(one, ast.AST)]
    return found


Node = TypeVar("Node", bound=ast.AST)


def nodes(tree: ast.Module, kind: type[Node]) -> list[Node]:
    return cast("list[Node]", by_kind(tree).get(kind, []))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from nodes(tree, ast.FunctionDef)
    yield from nodes(tree, ast.AsyncFunctionDef)


def imports(name: str, tree: ast.Module) -> Iterator[tuple[int, list[str]]]:
    """Yield line and dotted name, split; relative imports are spelled out from `raftsched`."""
    here = ["raftsched", *Path(name).parent.parts]
    for node in nodes(tree, ast.Import):
        yield from ((node.lineno, alias.name.split(".")) for alias in node.names)
    for ours in nodes(tree, ast.ImportFrom):
        base = here[: len(here) - ours.level + 1] if ours.level else []
        for alias in ours.names:
            module = ours.module.split(".") if ours.module else []
            yield ours.lineno, [*base, *module, alias.name]


def wrong_directions(files: Iterator[Source]) -> list[str]:
    return [
        f"{name}:{line}: {package} may not import {target[1]}"
        for package, name, tree in files
        for line, target in imports(name, tree)
        if target[0] == "raftsched"
        and not {target[1], ".".join(target[1:3])} & (MAY_IMPORT[package] | {package})
    ]


def wrong_order(files: Iterator[Source]) -> list[str]:
    """A package knows only those before it."""
    return [
        f"{name}:{line}: {here} may not import {there}, which stands behind it"
        for _, name, tree in files
        for folder, order in ORDER.items()
        if name.startswith(f"{folder}/")
        for here in [name[len(folder) + 1 :].split("/")[0].removesuffix(".py")]
        if here in order
        for line, target in imports(name, tree)
        for there in below(folder, target)[:1]
        if place(order, there) > place(order, here)
    ]


def below(folder: str, target: list[str]) -> list[str]:
    """What is imported, as it is named within a folder; nothing if it is elsewhere."""
    parts = ["raftsched", *folder.split("/")]
    return target[len(parts) :] if target[: len(parts)] == parts else []


def place(order: tuple[str, ...], name: str) -> int:
    if name not in order and "" in order:
        name = ""
    return order.index(name) if name in order else len(order)


def closed_doors(files: Iterator[Source]) -> list[str]:
    """Others may use what the docstring of a package lists, and nothing behind it."""
    return [
        f"{name}:{line}: {folder}/{package} does not offer {inside[0]} to others"
        for _, name, tree in files
        for line, target in imports(name, tree)
        for folder, order in ORDER.items()
        for package, *inside in [below(folder, target)[:2] or [""]]
        if inside and package in order and (ROOT / folder / package).is_dir()
        and not name.startswith(f"{folder}/{package}/")
        and inside[0] not in offered(f"{folder}/{package}")
    ]  # fmt: skip


@cache
def offered(package: str) -> list[str]:
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    return [line[2:].split(":")[0] for line in text.splitlines() if line.startswith("* ")]


def absolute_imports(files: Iterator[Source]) -> list[str]:
    """A file has two addresses in a checkout (docs/contracts.md); dots make each a closed world."""
    return [
        f"{name}:{node.lineno}: import our own package with dots"
        for _, name, tree in files
        for node in (*nodes(tree, ast.ImportFrom), *nodes(tree, ast.Import))
        if (isinstance(node, ast.ImportFrom) and not node.level and ours(node.module or ""))
        or (isinstance(node, ast.Import) and any(ours(alias.name) for alias in node.names))
    ]


def ours(dotted: str) -> bool:
    return dotted.split(".")[0] in {"raftsched", *MAY_IMPORT}


def wrong_doors(files: Iterator[Source]) -> list[str]:
    return [
        f"{name}:{line}: {target[0]} belongs in {' or '.join(DOORS[target[0]])}"
        for _, name, tree in files
        for line, target in imports(name, tree)
        if target[0] in DOORS and not name.startswith(DOORS[target[0]])
    ]


def worldly_rules(files: Iterator[Source]) -> list[str]:
    return [
        f"{name}:{line}: the rules may not touch {what}"
        for package, name, tree in files
        if package == "statemachine" and name not in RULES_RIM
        for line, what in [
            *((line, target[0]) for line, target in imports(name, tree)),
            *((node.lineno, "the wall clock") for node in clock_calls(tree)),
            *((node.lineno, "hash(), which differs between processes") for node in hashes(tree)),
        ]
        if what in SHUT_TO_RULES or " " in what
    ]


def clock_calls(tree: ast.Module) -> Iterator[ast.Call]:
    for call, owner, name in method_calls(tree):
        if owner in {"datetime", "date"} and name in CLOCK_CALLS:
            yield call


def method_calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str, str]]:
    for node in nodes(tree, ast.Call):
        match node.func:
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                yield node, owner, name
            case ast.Attribute(value=ast.Attribute(attr=owner), attr=name):
                yield node, owner, name


def hashes(tree: ast.Module) -> Iterator[ast.Call]:
    for node in nodes(tree, ast.Call):
        match node.func:
            case ast.Name(id="hash"):
                yield node


def wrong_starters(files: Iterator[Source]) -> list[str]:
    """Of a client's code only what is for one machine starts a server; systemd.py does not."""
    return [
        f"{name}:{line}: {' or '.join(CLIENT_STARTS)} start a cluster, and nothing else of a client"
        for package, name, tree in files
        if package == "client" and not name.startswith(CLIENT_STARTS)
        for line, target in imports(name, tree)
        if target[:3] == ["raftsched", "cluster", "local"] and target[3] != "systemd"
    ]


def other_starters(files: Iterator[Source]) -> list[str]:
    """A node as a process is started in one way, by what `cluster/local/` makes of its command."""
    return [
        f"{name}:{node.lineno}: cluster/local/ starts nodes; use its NodeProcesses"
        for _, name, tree in files
        for node in nodes(tree, ast.Constant)
        if node.value == "raftsched.cluster.main" and not name.startswith("cluster/local/")
    ]  # fmt: skip


def long_functions(files: Iterator[Source]) -> list[str]:
    return [
        f"{name}:{node.lineno}: {node.name} is longer than {LINES_PER_FUNCTION_MAX} lines"
        for _, name, tree in files
        for node in functions(tree)
        if (node.end_lineno or 0) - node.lineno + 1 > LINES_PER_FUNCTION_MAX
        and node.name not in LONG_FUNCTIONS
    ]


def names_of_two_classes(files: Iterator[Source]) -> list[str]:
    """One name, one thing: a reader who meets it knows which."""
    where: dict[str, list[str]] = {}
    for package, name, tree in files:
        for node in nodes(tree, ast.ClassDef) if package != "proto" else ():
            where.setdefault(node.name, []).append(f"{name}:{node.lineno}")
    return [
        f"{places[0]}: {name} is the name of a class at {places[1]} too"
        for name, places in where.items()
        if len(places) > 1 and name not in TWO_ENDS
    ]


def needless_exceptions(files: Iterator[Source]) -> list[str]:
    """A name stays an exception only while two classes bear it."""
    borne = [node.name for _, _, tree in files for node in nodes(tree, ast.ClassDef)]
    return [
        f"tests/test_tidy.py: {name} is the name of one class at most, and listed as that of two"
        for name in sorted(TWO_ENDS)
        if borne.count(name) < 2
    ]


def long_files(files: Iterator[Source]) -> list[str]:
    """Files of the server, of its proof and of the client are read in one go."""
    return [
        f"{name}: it has over {LINES_PER_FILE_MAX} lines"
        for _, name, tree in files
        if name.startswith(SHORT_FILES)
        and max((node.end_lineno or 0 for node in tree.body), default=0) > LINES_PER_FILE_MAX
    ]


def long_chains(files: Iterator[Source]) -> list[str]:
    """Files of one package stand in an order as well: no circle, and no longer chain."""
    near: dict[str, set[str]] = {}
    for _, name, tree in files:
        folder = name.rpartition("/")[0]
        here = ["raftsched", *folder.split("/")]
        if folder in CHAIN_MAX:
            near[name] = {
                f"{folder}/{target[len(here)]}.py"
                for _, target in imports(name, tree)
                if target[: len(here)] == here
            }
    lengths: dict[str, float] = {}

    def length(name: str) -> float:
        if name not in lengths:
            lengths[name] = float("inf")  # Whoever comes back to it stands in a circle.
            lengths[name] = 1 + max((length(one) for one in near[name] & near.keys()), default=0)
        return lengths[name]

    found = []
    for name in near:
        most = CHAIN_MAX[name.rpartition("/")[0]]
        if length(name) > most:
            found.append(f"{name}: a chain of {length(name)} imports begins here, {most} may be")
    return found


RULES = [
    wrong_directions, wrong_order, closed_doors, absolute_imports, wrong_doors, worldly_rules,
    wrong_starters, other_starters, long_functions, names_of_two_classes,
    needless_exceptions, long_files, long_chains,
]  # fmt: skip


def test_the_house_keeps_its_rules() -> None:
    """One test, since to read all sources is most of its work."""
    assert [found for rule in RULES for found in rule(iter(sources()))] == []


# Each rule, shown to bite: (rule, file, text that breaks it).
PLANTED = [
    (wrong_directions, "client/x.py", "from ..cluster import node"),
    (wrong_directions, "client/x.py", "from ..cluster import main"),
    (wrong_order, "cluster/local/x.py", "from ..raft import disk"),
    (closed_doors, "client/x.py", "from ..cluster.local import launch"),
    (wrong_order, "client/sdk/x.py", "from ..calls.blocking import client"),
    (wrong_order, "client/worker/x.py", "from .. import Client"),
    (wrong_order, "client/cli/render/x.py", "from ..session import Invocation"),
    (closed_doors, "client/gateway/x.py", "from ..sdk import connections"),
    (closed_doors, "client/cli/input/x.py", "from ..render import secret_door"),
    (wrong_starters, "client/sdk/x.py", "from ...cluster.local import nodes"),
    (wrong_directions, "statemachine/x.py", "from raftsched.client import errors"),
    (wrong_order, "statemachine/runs/x.py", "from ..calls import jobs"),
    (wrong_order, "statemachine/core/x.py", "from ..machine import decide"),
    (closed_doors, "cluster/x.py", "from ..statemachine.schedule import cron"),
    (closed_doors, "statemachine/calls/x.py", "from ..schedule.cron import parse"),
    (absolute_imports, "cluster/x.py", "from raftsched.proto.v1 import job_pb2"),
    (absolute_imports, "cluster/x.py", "import statemachine"),
    (wrong_doors, "cluster/x.py", "from rocksdict import Rdict"),
    (wrong_doors, "statemachine/x.py", "import croniter"),
    (worldly_rules, "statemachine/x.py", "import time"),
    (worldly_rules, "statemachine/x.py", "from random import choice"),
    (worldly_rules, "statemachine/x.py", "import datetime\ndatetime.datetime.now()"),
    (worldly_rules, "statemachine/x.py", "order = hash('a')"),
    (other_starters, "chaos/x.py", 'command = ["-m", "raftsched.cluster.main", "node"]'),
    (long_functions, "chaos/x.py", "def f():\n" + "    pass\n" * LINES_PER_FUNCTION_MAX),
    (names_of_two_classes, "cluster/x.py", "class Once: ...\nclass Once: ..."),
    (long_chains, "cluster/api/x.py", "from . import x"),
    (long_files, "cluster/api/x.py", "pass\n" * (LINES_PER_FILE_MAX + 1)),
]


@each(("rule", "name", "text"), PLANTED)
def test_a_planted_violation_is_found(rule: object, name: str, text: str) -> None:
    assert callable(rule)
    [found] = rule(iter([(name.split("/")[0], name, ast.parse(text))]))
    assert found.startswith(f"{name}:")
