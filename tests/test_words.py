"""Words that are gone, with what is said instead: in names, docstrings, comments and messages."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from .rows import each

ROOT = Path(__file__).parent.parent
# What nobody says in node, api and ops; see below.
GONE_FROM_SERVER = {
    "About": "NodeInfo",
    "Acquaintances": "PeerDirectory",
    "CROWD": "BATCHING_THRESHOLD",
    "Deliver": "WorkerSink",
    "Fit": "WorkerKind",
    "HEARD": "LEADER_CONTACT_TIMEOUT",
    "HERD": "MANY_DUE",
    "HURRY": "gossip.FAST_INTERVAL",
    "Journey": "VirtualTimeDriver",
    "Own": "OwnCall",
    "PACE": "MIN_CHANGE_INTERVAL",
    "Part": "PendingRequest",
    "Passed": "ForwardedAnswer",
    "Said": "UnprocessedBytes",
    "Seen": "NodeHealth",
    "Silent": "NullSink",
    "Told": "ChangeEvents",
    "Wish": "EventFilter",
    "abouts": "peer_infos",
    "crowd": "holders, callers",
    "foresee": "pre_serialize",
    "foreseen": "pre_serialized",
    "heir": "transfer target",
    "herd": "many that are due",
    "hurries": "is_urgent",
    "hurry": "urgent",
    "in_line": "in_offer_queue",
    "leader_moved": "on_leader_change",
    "occasion": "occurrence",
    "patience": "timeout, wait",
    "poke": "wake",
    "poked": "woken",
    "rang": "fired",
    "ring": "fire (of timers), wake",
    "rung": "fired",
    "said": "sent, reported, shown",
    "settle": "record, reschedule or close",
    "spared": "exempt",
    "sweep": "namespace_deletion",
    "tell": "send, show, notify",
    "telling": "sending, asking",
    "tells": "shows, sends",
    "told": "sent, shown, asked",
    "unmet": "from_lease_only",
    "wish": "filter, paging",
}
# What nobody says in the folders of the client.
GONE_FROM_CLIENT = {
    "Look": "ValueFormats",
    "Looker": "SnapshotReader",
    "Moment": "ClusterSnapshot",
    "fate": "outcome, verdict",
    "foresight": "preview",
    "greeted": "welcomed",
    "knock": "connect",
    "moment": "snapshot, instant",
    "moments": "snapshots, instants",
    "occasion": "occurrence",
    "occasions": "occurrences",
    "patience": "timeout",
    "rung": "woken",
    "tell": "notify, say, report",
    "telling": "notifying",
    "tells": "says",
    "told": "notified, reported, given",
    "wish": "request",
}
# What nobody says in the harness, the benchmarks and their commands.
GONE_FROM_HARNESS = {
    "Arena": "ChaosCluster",
    "CALM": "QUIET",
    "CROWD": "CONNECTIONS, BATCHING_THRESHOLD",
    "Sight": "HostileObservations",
    "arena": "cluster",
    "calm": "quiet",
    "crew": "workers",
    "crews": "workers",
    "crowd": "contention, connections, many",
    "crowded": "with_others",
    "crowds": "contentions",
    "greeted": "welcomed",
    "judge": "check",
    "judged": "checked",
    "judgement": "what the checks find",
    "judges": "checks",
    "judging": "checking",
    "settled": "ended, wait_until, loaded",
    "sight": "seen",
}
# By folder: what nobody says there any more. A word in small letters is looked for in names, which
# are taken apart, in comments and in strings; a name with a capital or an underscore as a name.
GONE: dict[str, dict[str, str]] = {
    "cluster/local": {"patience": "handler_timeout"},
    "cluster/raft": {
        "Word": "NodeNotice",
        "founding": "bootstrap",
        "heir": "transfer_target",
        "patience": "backoff, hello_timeout",
        "said": "sent, named",
        "settled": "ended, synced",
        "tell": "send, notify",
        "telling": "sending",
        "tells": "sends, says",
        "told": "notified, sent",
        "unheard": "silence_s",
        "void": "it does not count",
        "void_from": "truncate",
        "walled": "adapter",
    },
    "statemachine": {
        "Checked": "CheckedTemplate",
        "FLOW_LINE": "FLOW_BY_AGE",
        "Form": "Template",
        "Found": "FoundRun, ListedRun: a noun that says of what",
        "IN_LINE": "QUOTA_WAIT",
        "OWN": "LEADER_RULES",
        "Own": "LeaderRule",
        "Part": "RecordPart, CompiledSchedule",
        "Parts": "SpecParts",
        "Place": "a noun that says of what",
        "REMEMBERED": "IDEMPOTENCY",
        "RememberedRecord": "IdempotencyRecord",
        "Ring": "FireTimers",
        "RingOne": "FireTimer",
        "Rung": "WorkDone",
        "SPARED": "EXEMPT",
        "Shape": "ScheduleShape",
        "Sight": "AlertInputs",
        "TELL": "NOTICE",
        "TURN": "ROUND",
        "TellRecord": "NoticeRecord",
        "Teller": "EventMaker",
        "Told": "ChangeSummary",
        "UNPARK": "admit",
        "Wish": "PageRequest",
        "_let_in": "_admit_run",
        "_next_turn": "_next_release",
        "_pass_on": "_admit_next",
        "by_order": "by_action_version",
        "foresee": "preview",
        "foreseen": "previewed",
        "foresight": "forecast",
        "form": "template",
        "forms": "templates",
        "go_on": "advance_if_idle, make_more_room",
        "herd": "many jobs due at once, due_counts",
        "herds": "due_counts",
        "in_line": "quota_waits",
        "let_in": "admit",
        "line_for": "wait_queue_of",
        "look_ahead": "advance_behind",
        "mold": "batch",
        "molds": "job_batches",
        "occasion": "occurrence",
        "occasions": "occurrences",
        "ordered_in": "action_version",
        "pass_on": "admit_next",
        "rang": "fired",
        "remembered_line": "idempotency_by_age",
        "retime": "apply_timing",
        "revival": "recovery",
        "revivals": "recoveries",
        "revive": "recover",
        "revived": "recovered",
        "ring": "fire (of timers), wake",
        "rings": "fires",
        "rung": "fired",
        "said": "reported, stated",
        "serve_line": "serve_quota",
        "settle": "record, reschedule, close or write_back",
        "settles": "reschedules",
        "sight": "inputs",
        "spared": "exempt",
        "sweep": "namespace_deletion",
        "swept": "deletion",
        "tell": "notify, show",
        "telling": "notices",
        "tells": "notifies, shows",
        "told": "notified, shown, heard",
        "turn_ms": "rank_ms",
        "unpark": "admit",
        "wish": "request, paging",
    },
    "client": GONE_FROM_CLIENT,
    "client/cli": {"said": "a noun of what it is; shown, given"},
    "chaos": {
        "Place": "RunKey",
        "Seen": "Observations, AppliedListener",
        "Sink": "EffectSink",
        "holder": "idle worker, keeper",
        "holders": "idle workers, keepers",
        "patience": "delay, timeout, start deadline",
        "poke": "wake",
        "said": "sent, reported, received",
        "stock": "upstream",
        "tell": "notify, report, note",
        "telling": "reporting",
        "tells": "notifies, reports, shows",
        "told": "notified, given, ordered",
        "unheard": "unacknowledged",
        "wiring": "link backend",
    },
    **dict.fromkeys(("chaos/real", "chaos/bench", "chaos/commands"), GONE_FROM_HARNESS),
    # A rule of overlaps is called `judge`, which a mutant exchanges.
    "chaos/sim": {"Judge": "Oracle", "calm": "quiet", "judged": "checked", "judging": "checking"},
    "chaos/power": {"calm": "quiet", "judged": "checked"},
    **dict.fromkeys(("cluster/node", "cluster/api", "cluster/ops"), GONE_FROM_SERVER),
}


NAME = re.compile(r"\b[A-Za-z_]\w*")
PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words(text: str) -> Iterator[tuple[int, str]]:
    """What a file says, by line: names as they are, and words in small letters."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string
        if token.type in (tokenize.NAME, tokenize.STRING, tokenize.COMMENT):
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                yield from ((number, piece.lower()) for piece in PIECE.findall(line))


def said_again(name: str, text: str, gone: dict[str, str]) -> list[str]:
    # To take a file apart takes long, and few files need it.
    if gone.keys().isdisjoint([*NAME.findall(text), *map(str.lower, PIECE.findall(text))]):
        return []
    return [
        f"{name}:{line}: {word} is gone; say {gone[word]}"
        for line, word in sorted({*words(text)})
        if word in gone
    ]


# What nobody says in the documents of the folders and in docs/.
GONE_FROM_DOCUMENTS = {
    "arena": "cluster",
    "calm": "quiet",
    "herd": "many at once",
    "judged": "checked",
    "occasion": "occurrence",
    "patience": "timeout",
    "rung": "fired",
    "said": "sent, reported, given",
    "settled": "ended",
    "sight": "inputs, observations",
    "tell": "send, report, distinguish",
    "tells": "sends, reports, shows",
    "told": "notified, answered, distinguished",
    "unheard": "unacknowledged",
}
COMMANDS = re.compile(r"`[^`]*`")  # Names and what is typed stay as they are.


def files(folder: str) -> Iterable[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", GONE)
def test_words_that_are_gone_stay_gone(folder: str) -> None:
    found = [
        line
        for path in files(folder)
        for line in said_again(path.relative_to(ROOT).as_posix(), path.read_text(), GONE[folder])
    ]

    assert found == []


def documents() -> Iterator[tuple[str, str]]:
    for folder in (
        "chaos",
        "client",
        "cluster",
        "deploy",
        "docs",
        "proto",
        "statemachine",
        "tests",
    ):
        for path in sorted((ROOT / folder).rglob("*.md")):
            # Results are a record of what was run.
            if path.name != "RESULTS.md":
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def old_prose(name: str, text: str) -> list[str]:
    return [
        f"{name}:{number}: {word} is gone; say {GONE_FROM_DOCUMENTS[word]}"
        for number, line in enumerate(text.splitlines(), 1)
        for word in re.findall(r"[a-z]+", COMMANDS.sub("", line).lower())
        if word in GONE_FROM_DOCUMENTS
    ]


def test_documents_say_it_with_the_words_that_are_left() -> None:
    assert [line for name, text in documents() for line in old_prose(name, text)] == []
    assert len(old_prose("x.md", "It was told of a `herd`.\nCalm.")) == 2


@each(
    "text",
    [
        "class Wish: ...",
        "def let_in(): ...",
        "runs.herd = 1",
        "def count_herd(): ...",
        "# A herd is due.",
        '"""Herd."""',
        "class HerdRecord: ...",
    ],
)
def test_a_word_that_is_gone_is_found(text: str) -> None:
    assert said_again("x.py", text, {"Wish": "", "let_in": "", "herd": ""})


@pytest.mark.parametrize("text", ["# A wish.", "def let_in_all(): ...", "shepherd = 1"])
def test_other_words_stay(text: str) -> None:
    assert not said_again("x.py", text, {"Wish": "", "let_in": "", "herd": ""})
