"""Jobs and runs that a view hands out: what was taken is written, and nothing else is changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftsched import statemachine
from raftsched.proto.v1 import job_pb2
from raftsched.statemachine import rules
from raftsched.statemachine.calls import jobs
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import RunRecord, StateRecord
from raftsched.statemachine.model.view import Recall, View

from .driver import Machine

PLACES = Path(statemachine.__file__).parent
ENTITY_FIELDS = ("state", "definition", "record")
# Helpers of one module, whose callers there have taken the record that they hand on.
HELPERS = {"runs/move.py", "runs/lanes.py", "runs/reports.py", "runs/runs.py"}


def test_what_was_taken_is_written_without_more(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    view = View(machine.store, machine.now_ms)
    job = jobs.find(view, "", "a")

    view.change_state(job).skipped = 17
    view.change_definition(job).creator = "somebody"
    view.seal()

    assert view.sealed is not None
    assert view.sealed.keys == [keys.job(job.jid), keys.state(job.jid)]


def test_what_is_only_read_is_not_written(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    run = machine.trigger("a")
    view = View(machine.store, machine.now_ms)

    place = keys.run_key(run.id)
    assert place is not None
    assert view.run(place).job is view.job(place[0])

    assert view.seal() == b""


def test_a_job_is_the_same_however_it_is_asked_for(machine: Machine) -> None:
    """A record that was fetched by its key before, and one that was lent."""
    machine.create("a", cron="0 * * * *")
    recall = Recall()
    first = View(machine.store, machine.now_ms, recall)
    jid = machine.jid("a")
    state = first.need(keys.state(jid), StateRecord)
    assert first.job(jid).state is state
    assert first.need(keys.state(jid), StateRecord) is state
    recall.keep(first)

    second = View(machine.store, machine.now_ms, recall)

    assert second.need(keys.state(jid), StateRecord) is state
    assert second.job(jid).state is state


def test_a_run_goes_with_its_job_from_one_generation_to_the_next(machine: Machine) -> None:
    """A job that was read anew beside a run that holds the old one would be two."""
    machine.create("a", cron="0 * * * *")
    for other in range(8):
        machine.create(f"other-{other}", cron="0 * * * *")
    place = keys.run_key(machine.trigger("a").id)
    assert place is not None
    recall = Recall(most=6)
    for step in range(40):
        view = View(machine.store, machine.now_ms, recall)
        if step % 3 == 0:
            run = view.run(place)
            assert run.job is view.job(place[0])
        if step % 5 == 0:
            view.job(place[0])
        view.job(machine.jid(f"other-{step % 8}"))
        assert all(run.job is view.jobs[run.jid] for run in view.runs.values())
        recall.keep(view)


def test_a_rule_that_changes_what_it_only_read_is_found_out(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.create("a", cron="0 * * * *")

    def careless(view: View, request: job_pb2.PauseJobRequest, actor: str) -> job_pb2.Job:
        jobs.find(view, "", request.job).state.pause_reason = "in memory alone"
        return job_pb2.Job()

    monkeypatch.setitem(rules.RULES, job_pb2.PauseJobRequest, careless)

    with pytest.raises(AssertionError, match="did not take it for that"):
        machine.do_all(job_pb2.PauseJobRequest(job="a"))


def test_nobody_assigns_to_a_record_that_was_not_taken() -> None:
    """`job.state`, `job.definition` and `run.record` are for reading, also by another name."""
    found = []
    for path in sorted(PLACES.rglob("*.py")):
        place = path.relative_to(PLACES).as_posix()
        for function in functions(path):
            found += [f"{place}:{line} {what}" for line, what in wrong_in(function, place)]
    assert not found, "\n".join(found)


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node


def wrong_in(function: ast.FunctionDef, place: str) -> Iterator[tuple[int, str]]:
    # By name, where it was bound, and whether to what is only read.
    bound = [] if place in HELPERS else [(function.lineno, p, True) for p in parameters(function)]
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            bound += [(node.lineno, name, reads(value)) for name, value in pairs(node)]
    for node in ast.walk(function):
        for target in targets(node):
            if isinstance(target, ast.Attribute):
                owner = ast.unparse(target.value).split(".")[0].split("[")[0]
                before = [one for one in bound if one[0] <= target.lineno and one[1] == owner]
                if reads(target.value) or (before and max(before)[2]):
                    yield target.lineno, f"{function.name}: {ast.unparse(target)}"


def parameters(function: ast.FunctionDef) -> Iterator[str]:
    kinds = {StateRecord.__name__, RunRecord.__name__, "JobRecord"}
    for argument in (*function.args.args, *function.args.kwonlyargs):
        if argument.annotation is not None and ast.unparse(argument.annotation) in kinds:
            yield argument.arg


def pairs(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """The names that are given a value, with it."""
    for target in node.targets:
        both = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            both = list(zip(target.elts, node.value.elts, strict=True))
        for name, value in both:
            if isinstance(name, ast.Name):
                yield name.id, value


def reads(value: ast.expr) -> bool:
    """Whether an expression is a record of an entity, or a part of it."""
    while isinstance(value, ast.Subscript | ast.Attribute):
        if isinstance(value, ast.Attribute) and value.attr in ENTITY_FIELDS:
            return not (isinstance(value.value, ast.Call) or ast.unparse(value) == "self.state")
        value = value.value
    return False


def targets(node: ast.AST) -> list[ast.expr]:
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        found = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    return [one for each in found for one in (each.elts if isinstance(each, ast.Tuple) else [each])]
