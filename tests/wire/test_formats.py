"""What nodes send each other, and what lies in a node's folder, keeps its bytes.

formats/NAME.txt holds them, and docs/formats.md says what may change and how. Where a format takes
its step, the bytes of the step before stay in a file of their own and are still read:

    RAFTSCHED_GOLDEN=write ./dev test tests/wire
"""

from __future__ import annotations

import inspect
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from raftsched.cluster.node import backup
from raftsched.cluster.node.figure_history import Figure, Past
from raftsched.cluster.node.peer_info import NodeInfo
from raftsched.cluster.ops import data_dir
from raftsched.cluster.raft import manifest, membership, message, record
from raftsched.statemachine.model import keys

FORMATS = Path(__file__).parent / "formats"
DIGEST = "ab" * 32
MEMBERS = membership.Configuration(
    {"n1": membership.Member(7, "a:1", True), "n2": membership.Member(8, "b:2", False, "c:3")},
    origin="once",
)
FIGURE = Figure(60, "n1", 1.5, 2, late=(3, 4), behind={"n2": 5})
MANIFEST = manifest.Manifest(
    9, 3, 8, [(4, MEMBERS.encode().decode())], [manifest.FileOf("000012.sst", 5, DIGEST)]
)


def held(name: str, lines: dict[str, bytes]) -> dict[str, bytes]:
    """The bytes as they are kept, which must be those of today; "text" where they are text."""
    path = FORMATS / f"{name}.txt"
    if os.environ.get("RAFTSCHED_GOLDEN") == "write":
        path.write_text("".join(f"{key} {data.hex()}\n" for key, data in lines.items()))
    kept = dict(line.split(" ") for line in path.read_text().splitlines())
    assert {key: data.hex() for key, data in lines.items()} == kept
    return {key: bytes.fromhex(digits) for key, digits in kept.items()}


# What nodes send each other.


def messages() -> list[message.Message]:
    """One of each kind, in which no two numbers are the same."""
    entries = (
        record.Entry(102, 4, record.COMMAND, b"change"),
        record.Entry(103, 4, record.CONFIG, MEMBERS.encode()),
    )
    found: list[message.Message] = []
    for kind in get_args(message.Message):
        values: list[object] = []
        for place, hint in enumerate(get_type_hints(kind).values()):
            number = 101 + place if place else 5
            values.append(
                {int: number, float: number + 0.5, bool: True, bytes: b"tail"}.get(hint, entries)
            )
        found.append(kind(*values))
    found[0] = message.Append(5, 101, 4, 101, entries)
    return found


def test_messages_keep_their_bytes_and_are_read() -> None:
    sent = messages()
    frames = [message.encode(one, 77) for one in sent]
    kept = held("messages", {str(frame[0]): frame for frame in frames})
    assert [message.decode(data) for data in kept.values()] == [(one, 77) for one in sent]


def test_a_message_kind_that_is_not_known_is_refused_by_its_number() -> None:
    newer = struct.pack("<BQ", len(messages()), 77)
    with pytest.raises(message.WireError, match=f"no message of kind {len(messages())}"):
        message.decode(newer)


def test_what_a_node_tells_of_itself_keeps_its_bytes_and_may_gain_fields() -> None:
    told = NodeInfo(
        "a:1", "0.1.0", "2026a", 3, True, 1, 2, 3, "ff", recovery="cd" * 32,
        forward_key="ab" * 32, figures=(FIGURE,), figures_begin=(1, 2, 3),
        figures_past=(Past(4, (FIGURE,)),),
    )  # fmt: skip
    (kept,) = held("node-info", {"json": msgspec.json.encode(told)}).values()
    assert msgspec.json.decode(kept, type=NodeInfo) == told
    newer = json.loads(kept) | {"of_a_later_release": [1]}
    assert msgspec.json.decode(json.dumps(newer), type=NodeInfo) == told


# What lies in a node's folder.


def test_the_journal_keeps_its_bytes_and_is_read() -> None:
    header = record.Header(
        number=2, journal_id="00" * 8, reset=False, chain=9, last_index=4, last_term=3, term=5,
        vote="n1", identity={"a": 1}, configs=[(4, MEMBERS.encode().decode())],
    )  # fmt: skip
    entry, _ = record.encode(record.COMMAND, 6, 5, 4, b"change", 9)
    kept = held("journal", {
        "header": header.encode().rstrip(b"\0"),
        "record": entry,
        "seal": record.seal_payload("00" * 8, 2, 8192),
        "kinds": bytes([record.NOOP, record.COMMAND, record.CONFIG, record.VOTE, record.SEAL,
                        record.IDENTITY, record.SWITCH]),
    })  # fmt: skip
    assert record.Header.decode(kept["header"].ljust(record.HEADER_BYTES, b"\0")) == header
    found = record.decode(kept["record"], 0, before=9)
    assert found is not None
    assert (found.kind, found.index, found.term, found.payload) == (2, 6, 5, b"change")


def test_the_manifest_of_a_snapshot_keeps_its_bytes_and_is_read() -> None:
    kept = held("manifest", {"manifest": MANIFEST.encode(), "members": MEMBERS.encode()})
    assert manifest.Manifest.decode(kept["manifest"]) == MANIFEST
    assert membership.Configuration.decode(kept["members"]) == MEMBERS


def test_the_identity_of_a_folder_keeps_its_fields(tmp_path: Path) -> None:
    data_dir.Folder(tmp_path, "c", "n1").close()
    written = json.loads((tmp_path / "node.json").read_text()) | {"version": "0.1.0"}
    (kept,) = held("node-json", {"json": json.dumps(written).encode()}).values()
    for older in (kept, b'{"format": 1, "cluster": "c", "node": "n1", "version": "0.1.0"}'):
        (tmp_path / "node.json").write_bytes(older)
        data_dir.Folder(tmp_path, "c", "n1").close()


# What an operator keeps.


def test_a_backup_keeps_its_fields_and_is_read(tmp_path: Path) -> None:
    told = {
        "format": backup.FORMAT, "cluster": "c", "node": "n1", "term": 3, "revision": 8,
        "applied_index": 9, "fingerprint": "ff", "feature_level": 3, "version": "0.1.0",
        "time": "2026-11-20T00:00:00Z",
        "files": [{"name": "state/CURRENT", "size": 2,
                   "sha256": "8dca7fb9ff39cd2d1d963be61b5bad7f4d0b02b44b4ac78f9bea1acd1d3d2f7c"}],
        "jobs": 4, "live_runs": 5,
    }  # fmt: skip
    assert set(told) == set(backup.ArchiveManifest.__struct_fields__)
    (kept,) = held("backup", {"manifest": json.dumps(told).encode()}).values()
    newer = json.dumps(json.loads(kept) | {"of_a_later_release": 1}).encode()
    assert msgspec.json.decode(newer, type=backup.ArchiveManifest).format == backup.FORMAT


# Where the records of the state lie.


# The keys that are made without a call of Python, and of how many numbers.
PACKED = {"job": 1, "state": 1, "run": 2, "ledger": 2, "stretch": 2, "lane": 1, "ready": 4,
          "lease": 2, "lease_value": 2}  # fmt: skip
VALUES: dict[str, object] = {"tuple": [("a", "b")], "bytes": b"\5\0\0\0\0\0\0\0", "str": "text"}


def key_of(function: Callable[..., bytes]) -> bytes:
    """With arguments of the kinds that it takes; numbers are 7, 8, 9."""
    found = []
    for place, one in enumerate(inspect.signature(function).parameters.values()):
        kinds = (value for kind, value in VALUES.items() if kind in str(one.annotation))
        found.append(b"*" if one.name == "table" else next(kinds, 7 + place))
    return function(*found)


def test_tables_and_keys_keep_their_bytes() -> None:
    """A table, a timer or a key more is a line more; none of them changes."""
    lines = {
        name: value for name, value in sorted(vars(keys).items())
        if isinstance(value, bytes) and name.isupper()
    }  # fmt: skip
    for name, count in PACKED.items():
        lines[f"{name}()"] = getattr(keys, name)(*range(7, 7 + count))
    for name, function in sorted(inspect.getmembers(keys, inspect.isfunction)):
        if inspect.signature(function).return_annotation == "bytes":
            lines[f"{name}()"] = key_of(function)
    held("keys", lines)
    tables = [letter for letter in lines.values() if len(letter) == 1]
    assert len(tables) > 50


def test_no_two_tables_and_no_two_timers_share_a_letter() -> None:
    letters = {
        name: value for name, value in vars(keys).items()
        if name.isupper() and isinstance(value, bytes) and len(value) == 1
        and name not in ("LEDGER_END", "LABEL", "LAST")
    }  # fmt: skip
    for timers in (True, False):
        found = [letter for name, letter in letters.items() if name.startswith("WAKE_") is timers]
        assert len(set(found)) == len(found)
