"""Tables for people fit the terminal, whatever they hold."""

from __future__ import annotations

import re
from typing import Any

import pytest
from google.protobuf.message import Message

from raftsched.client.cli import messages as m
from raftsched.client.cli.render.columns import COLUMNS
from raftsched.client.cli.render.output import Output

TEXT = "a-rather-long-name-for-one-thing"
MODULES = [getattr(m, f"{name}_pb2") for name in (
    "access", "alert", "calendar", "cluster", "flow", "identity", "job", "namespace", "queue",
    "run", "secret", "worker", "event",
)]  # fmt: skip
DEPTH = 4


def kind_of(name: str) -> type[Message]:
    places = [*MODULES, m.job_pb2.AuditJobResponse, m.run_pb2.Run, m.cluster_pb2.ClusterStatus]
    found = [getattr(place, name) for place in places if hasattr(place, name)]
    return found[0]  # type: ignore[no-any-return]


def filled(message: Any, text: str, depth: int = 0) -> Any:
    """Everything that can be said, in words as long as they come."""
    for field in message.DESCRIPTOR.fields:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            getattr(message, field.name)["key"] = text
        elif kind is not None and kind.full_name.startswith("google.protobuf."):
            getattr(message, field.name).seconds = 1_763_456_400
        elif kind is not None:
            if depth < DEPTH:
                target = getattr(message, field.name)
                filled(target.add() if field.is_repeated else target, text, depth + 1)
        elif field.cpp_type == field.CPPTYPE_STRING:
            value: Any = text.encode() if field.type == field.TYPE_BYTES else text
            getattr(message, field.name).append(value) if field.is_repeated else setattr(
                message, field.name, value
            )
        elif not field.is_repeated:
            setattr(message, field.name, 1)
    return message


@pytest.mark.parametrize("name", COLUMNS)
def test_no_line_of_a_table_is_wider_than_the_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [filled(kind_of(name)(), text) for text in (TEXT, "b", f"{TEXT}: and {TEXT}")]
    monkeypatch.setenv("NO_COLOR", "1")
    for width in (80, 100):
        monkeypatch.setenv("COLUMNS", str(width))

        Output("table", color="always", time_style="utc")._table_of(made)

        shown = capsys.readouterr().out.splitlines()
        assert max(map(len, shown)) <= width, shown
        # No title is broken, and none is broken off.
        titles = [column.title for column in COLUMNS[name] if not column.wide]
        assert not re.search("…", shown[0])
        assert shown[0].split()[0] == titles[0].split()[0]
        assert all(" ".join([title]) in titles for title in re.split(r"  +", shown[0].strip()))
