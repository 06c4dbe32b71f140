"""Members tell each other what they compute with."""

from __future__ import annotations

import msgspec
import pytest

from raftsched.cluster.node import build
from raftsched.cluster.node.applier import Applied
from raftsched.cluster.node.peer_info import NodeInfo, PeerDirectory
from raftsched.cluster.node.secret_keys import SecretKey
from raftsched.cluster.raft.message import NodeNotice, decode, encode
from raftsched.statemachine.core.store import MemoryStore


def made(name: str) -> PeerDirectory:
    return PeerDirectory(name, Applied(MemoryStore()), lambda: 0, lambda: 100.0)


def test_the_names_of_all_zones_fit_into_what_members_tell_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, other = made("n1"), made("n2")
    with monkeypatch.context() as old:
        old.setattr(build, "zones_digest", lambda: "old")
        words = say(other)
    first.received("n2", words)
    names = list(build.zone_names())[:64]
    words = first.message("h:1", "1", serving=True, workers=10**6, zones_in_use=names)
    assert "Asia/Tokyo" in words.decode()

    message, _ = decode(encode(NodeNotice(1, words), 1))

    assert message == NodeNotice(1, words)


def say(one: PeerDirectory) -> bytes:
    return one.message("h:1", "1", serving=True)


def test_members_alike_say_nothing_of_zones() -> None:
    first, other = made("n1"), made("n2")
    first.received("n2", say(other))

    assert first.differences() == []
    assert first.lacking() == {}
    assert msgspec.json.decode(say(first), type=NodeInfo).zone_names == ()
    assert len(build.build()) == 12


def test_a_zone_that_a_member_lacks_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = made("n1"), made("n2")
    # n2 has older zones: it hears n1, which has others, and so says which it knows.
    with monkeypatch.context() as old:
        old.setattr(build, "zone_names", lambda: frozenset({"UTC", "Europe/Berlin"}))
        old.setattr(build, "zones_digest", lambda: "old")
        old.setattr(build, "build", lambda: "b0")
        words = say(first)
        old.undo()
        new_words = say(first)
        old.setattr(build, "zone_names", lambda: frozenset({"UTC", "Europe/Berlin"}))
        old.setattr(build, "zones_digest", lambda: "old")
        old.setattr(build, "build", lambda: "b0")
        other.received("n1", new_words)
        words = say(other)

    first.received("n2", words)

    assert first.lacking()["Asia/Tokyo"] == "n2"
    assert "Europe/Berlin" not in first.lacking()
    said = " ".join(first.differences())
    assert f"n2 has the build b0, n1 has {build.build()}." in said
    assert "the list of time zones old" in said


def test_members_whose_keys_for_secrets_differ_are_named() -> None:
    first, other = made("n1"), made("n2")
    first.secret_keys.keys = (SecretKey(b"a" * 32), SecretKey(b"b" * 32))
    first.received("n2", say(other))
    [said] = first.differences()
    assert "n2 has the keys for secrets none" in said
    assert first.lacks_key(first.secret_keys.ids[0]) == "n2"
    other.secret_keys.keys = first.secret_keys.keys
    first.received("n2", say(other))
    assert first.differences() == []
    assert first.lacks_key(first.secret_keys.ids[0]) == ""
    assert first.lacks_key("other") == "n2"
    other.secret_keys.keys = other.secret_keys.keys[::-1]
    first.received("n2", say(other))
    [said] = first.differences()
    assert "put the same key first" in said
