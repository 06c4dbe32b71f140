"""A history in the words of Jepsen and Porcupine, read and checked by code that shares nothing."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from raftsched.chaos.real.history import OK, REFUSED, UNKNOWN, ClientCall, FaultSpan, Observations
from raftsched.chaos.real.linear import linearizable
from raftsched.chaos.real.outside import write_history

TOKEN = re.compile(r'[{}\[\]]|"(?:[^"\\]|\\.)*"|[^\s,{}\[\]"]+')
Op = tuple[float, float, str, Any]  # Began, ended (never: infinity), read or write, value.
NEVER = float("inf")


def read_edn(text: str) -> list[Any]:
    """All forms of a text: maps, vectors, strings, keywords as ":word", numbers, nil."""
    stack: list[list[Any]] = [[]]
    for token in TOKEN.findall(text):
        if token in "[{":
            stack.append([])
        elif token == "]":
            stack[-2].append(stack.pop())
        elif token == "}":
            flat = stack.pop()
            stack[-1].append(dict(zip(flat[::2], flat[1::2], strict=True)))
        elif token[0] == '"':
            stack[-1].append(json.loads(token))
        else:
            known = {"nil": None}
            stack[-1].append(
                known[token] if token in known else token if token[0] == ":" else int(token)
            )
    [forms] = stack
    return forms


def from_edn(text: str) -> dict[str, list[Op]]:
    """Operations by key; how a checker of Jepsen pairs invocations with what ends them."""
    found: dict[str, list[Op]] = {}
    open_: dict[int, dict[str, Any]] = {}
    forms = read_edn(text)
    assert [form[":index"] for form in forms] == list(range(len(forms)))
    assert [form[":time"] for form in forms] == sorted(form[":time"] for form in forms)
    for form in forms:
        process = form[":process"]
        if process == ":nemesis":
            continue
        if form[":type"] == ":invoke":
            assert process not in open_, "a process does one thing at a time"
            open_[process] = form
            continue
        begun = open_[process]
        if form[":type"] != ":info":
            del open_[process]  # Else nobody may ever use that number again.
        if form[":type"] == ":fail" or (form[":type"] == ":info" and form[":f"] == ":read"):
            continue
        key, value = form[":value"]
        ended = form[":time"] if form[":type"] == ":ok" else NEVER
        found.setdefault(key, []).append((begun[":time"], ended, form[":f"][1:], value))
    return found


def from_json(text: str) -> dict[str, list[Op]]:
    found: dict[str, list[Op]] = {}
    for op in json.loads(text):
        asked, answered = op["Input"], op["Output"]
        is_read = asked["op"] == "get"
        if answered["unknown"] and is_read:
            continue
        found.setdefault(asked["key"], []).append((
            op["Call"], NEVER if answered["unknown"] else op["Return"],
            "read" if is_read else "write", answered["value"] if is_read else asked["value"],
        ))  # fmt: skip
    return found


def is_register(ops: list[Op]) -> bool:
    """Whether some order makes sense of one register; by trying, so for few operations."""

    def orders(left: tuple[int, ...], value: object) -> bool:
        if all(ops[i][1] == NEVER for i in left):
            return True
        first_end = min(ops[i][1] for i in left)
        for i in left:
            began, _, kind, about = ops[i]
            if began <= first_end and (kind == "write" or about == value):
                rest = tuple(j for j in left if j != i)
                if orders(rest, about if kind == "write" else value):
                    return True
        return False

    return orders(tuple(range(len(ops))), None)


def invented(dice: random.Random, *, wrong: bool) -> Observations:
    """Clients who write and read records; each call takes effect in its middle."""
    seen, values = Observations(), dict[str, str]()
    free = {f"c{n}": 0.0 for n in range(3)}
    calls = []
    for at in range(24):
        client = dice.choice(sorted(free))
        began = max(free[client], at * 0.01) + dice.uniform(0.0, 0.02)
        ended = began + dice.uniform(0.001, 0.05)
        free[client] = ended + 0.001
        calls.append(((began + ended) / 2, client, began, ended))
    for number, (_, client, began, ended) in enumerate(sorted(calls)):
        job = dice.choice(("a", 'b "quoted" \\ and ü'))
        is_there = job in values
        kinds = ("get", "get", "update", "delete") if is_there else ("get", "create")
        what = dice.choice(kinds)
        value = f"v{number}" if what in ("create", "update") else ""
        outcome = dice.choice((OK, OK, OK, UNKNOWN, REFUSED))
        if what == "get":
            value = values.get(job, "") if outcome == OK else ""
        elif outcome != REFUSED:
            values.pop(job, None)
            if what != "delete":
                values[job] = value
        seen.calls.append(ClientCall(client, what, job, began, ended, 5.0, outcome, value))
    if wrong:
        seen.calls.append(ClientCall("c9", "get", "a", 90.0, 90.1, 5.0, OK, "never written"))
    seen.faults.append(FaultSpan("clock drift", "n1", 0.05, 0.1, "told"))
    return seen


@pytest.mark.parametrize("suffix", [".edn", ".json"])
@pytest.mark.parametrize("wrong", [False, True])
def test_another_reader_comes_to_the_same_verdict(
    tmp_path: Path, suffix: str, *, wrong: bool
) -> None:
    for seed in range(4):
        seen = invented(random.Random(seed), wrong=wrong)
        ours = all(
            linearizable([c for c in seen.calls if c.job == job])
            for job in {c.job for c in seen.calls}
        )
        path = tmp_path / f"history{suffix}"

        assert write_history(path, seen) == len(seen.calls)

        records = (from_edn if suffix == ".edn" else from_json)(path.read_text())
        assert all(map(is_register, records.values())) == ours == (not wrong), f"seed {seed}"


def test_faults_stand_beside_the_calls(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    seen = invented(random.Random(1), wrong=False)

    write_history(path, seen)

    nemesis = [f for f in read_edn(path.read_text()) if f[":process"] == ":nemesis"]
    assert [(f[":f"], f[":value"]) for f in nemesis] == [
        (":start-clock-drift", "n1"), (":stop-clock-drift", "n1"),
    ]  # fmt: skip


def test_no_calls_are_a_history_too(tmp_path: Path) -> None:
    assert write_history(tmp_path / "none.edn", Observations()) == 0
    assert write_history(tmp_path / "none.json", Observations()) == 0
    assert json.loads((tmp_path / "none.json").read_text()) == []
