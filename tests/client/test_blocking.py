"""The blocking half is what the asynchronous half says it is."""

from __future__ import annotations

from raftsched.client.calls.generate import TARGET, blocking


def test_the_blocking_calls_are_made_from_the_asynchronous_ones() -> None:
    found = {path.name: path.read_text() for path in TARGET.glob("*.py")}

    assert found == blocking(), "run `python client/calls/generate.py`"
    assert "await" not in "".join(found.values())
