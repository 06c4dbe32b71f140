"""The typed calls are what the contracts say, and the blocking half is what the other one is."""

from __future__ import annotations

from raftsched.client.calls.catalog import NOT_TYPED, SERVICES
from raftsched.client.calls.generate import AIO, BLOCKING, made
from raftsched.proto.contract import methods

# A few: what is more than one request, or has words of its own. Their files say why.
BY_HAND_MAX = 12


def test_each_call_of_the_contracts_is_typed_or_it_is_said_why_not() -> None:
    typed = [call.rpc for service in SERVICES for call in service.calls if call.kind != "count"]
    by_hand = [name for service in SERVICES for name in service.by_hand]

    assert sorted([*typed, *by_hand, *NOT_TYPED]) == sorted(one.verb for one in methods())
    assert len(by_hand) <= BY_HAND_MAX
    for path in AIO.glob("*_by_hand.py"):
        assert path.read_text().startswith('"""Why by hand: '), path


def test_nothing_that_is_made_waits_in_the_blocking_half() -> None:
    text = "".join(path.read_text() for path in BLOCKING.glob("*.py"))

    assert "await" not in text
    assert "async" not in text.lower()
    assert {path.name for path in BLOCKING.glob("*.py")} == {p.name for p in AIO.glob("*.py")}


def test_a_file_that_is_made_says_what_of() -> None:
    for path in made():
        assert path.name == "__init__.py" or path.read_text().startswith("# Made from ")
