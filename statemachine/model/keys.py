"""Where things are stored: one byte for the table, then big-endian numbers, so that bytes sort as
numbers do.

A `jid` is the number of a job: 24 bits of its namespace's number, 40 bits of its own, so that a
namespace lies together in every table. An `occurrence` is a run's place in its job: 48 bits of
scheduled time, 16 bits of serial number, which is 0 for what a schedule fired. So the key of a run
is its job and scheduled time, and one scheduled time cannot become two runs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import blake2b

# Records: the truth.
META = b"M"
NAMESPACE = b"N"  # name
JOB = b"J"  # jid
STATE = b"S"  # jid
FORMER = b"O"  # jid, version: what runs under way do that were made before their job was changed
RUN = b"R"  # jid, occurrence: runs under way
ENDED = b"H"  # jid, inverted occurrence: runs that have ended, newest first
CARRIED = b"h"  # jid, occurrence: what a few runs, under way or ended, carry for others
LEDGER = b"L"  # jid, scheduled time
QUEUE = b"Q"  # namespace, queue
LANE = b"Z"  # lane
SESSION = b"s"  # worker, as its tenant has it (`worker_of`)
UNIQUE = b"U"  # jid, key
IDEMPOTENCY = b"I"  # hash of the request id
AUDIT = b"A"  # inverted place
CALENDAR = b"B"  # namespace, name
ALERT = b"a"  # namespace, name
ACCESS = b"P"  # name of an access token
FORMER_SECRET = b"1"  # name of an access token -> until when, and the hash of its former secret
TOKEN_USE = b"3"  # name of an access token -> the hour in which it was last used
PROVIDER = b"V"  # name of an identity provider
TARGET_SECRET = b"6"  # namespace, name: a secret for the targets of jobs, encrypted
NAMESPACE_DELETION = b"X"  # namespace that was deleted
FLOW = b"F"  # jid, occurrence
STEP = b"f"  # jid and occurrence of the flow, jid of the step
ROOM = b"r"  # jid: what still goes to make room for a run
INDEXED = b"m"  # once: all stretches before this key of the ledger stand in STRETCH
NOTICE = b"t"  # jid and occurrence of the flow, jid upstream: an end others are still to hear of
SET_BACK = b"b"  # once: up to when times were decided on before the state's time was set back
RESUME = b"v"  # jid: a job that fires again, with what came to it while it was paused
BROKEN = b"K"  # jid: jobs that were set aside
STREAK = b"0"  # jid: runs that failed in a row, of a job that is to be paused for that
WARNED = b"2"  # jid: how many runs of a job succeeded with a warning
CATCH_UP = b"c"  # jid: when the backlog of a job goes on
STAGED = b"o"  # once: the backup that is on its way into this state
PIECE = b"G"  # number of the stage, offset: the bytes of that backup
RESTORED = b"j"  # once: the backup that this state began from, while the cluster ran
SURVEY = b"8"  # jid and occurrence of the flow: it looks for the jobs that it may come to
SURVEYED = b"9"  # jid and occurrence of the flow, place: the jobs that were found, in their order
IN_SURVEY = b"+"  # jid and occurrence of the flow, jid -> number of the survey that found it

# Derived from the records; `verify` computes them anew.
USAGE = b"u"  # namespace
NAME = b"n"  # namespace, job -> jid
TIMER = b"T"  # instant, kind, what
READY = b"Y"  # lane, rank, jid, occurrence
PARKED = b"W"  # whose slot, lane, rank, jid, occurrence
FIRST_WAITING = b"w"  # as in PARKED up to the lane -> the first place there may be an entry at
LIMIT_KEY = b"C"  # namespace, key
LEASE = b"E"  # session, token -> jid, occurrence
LANE_OF = b"z"  # namespace, queue, priority, handler, labels -> lane
BUSY = b"y"  # namespace, queue, labels, handler, lane: lanes that have ready runs
LANES_INDEXED = b"k"  # once: lanes up to this number stand in BUSY while they have ready runs
SECRET = b"p"  # hash of a secret -> name of an access token
DEAD = b"D"  # namespace, inverted end, jid, occurrence
IDEMPOTENCY_BY_AGE = b"i"  # place -> hash of the request id
EDGE = b"e"  # jid upstream, jid downstream -> condition
FLOW_BY_AGE = b"g"  # namespace, inverted beginning, jid, occurrence
STRETCH = b"l"  # jid, first scheduled time: entries of the ledger that speak of many
QUOTA_WAIT = b"q"  # namespace, since, jid: jobs that wait for the quota of runs
FIRST_QUOTA_WAIT = b"x"  # namespace -> as FIRST_WAITING, for QUOTA_WAIT
SECRET_USER = b"7"  # namespace, hash of a secret's name, jid: jobs that name it
DEPENDS = b"d"  # jid upstream: how many depend on it, and how long the way to it is

# What a timer wakes.
WAKE_JOB = b"J"
WAKE_RUN = b"R"
WAKE_PURGE = b"P"
WAKE_UNIQUE = b"U"
WAKE_FLOW = b"F"
WAKE_DELETION = b"N"
WAKE_RETURN = b"B"
WAKE_ROOM = b"O"
WAKE_BACKLOG = b"K"
WAKE_HELD = b"H"
WAKE_QUOTA = b"Q"
WAKE_RESUME = b"V"
WAKE_WAVES = b"W"
WAKE_LIMITS = b"L"

# Timers of what can wait stand in a range of their own, behind all others: they have this bit.
LATER = 1 << 62

# The namespace's number in the keys of the cluster's own alerts: no namespace has it.
CLUSTER = (1 << 32) - 1

PLACE = 24  # Bytes of a run's place in its wait queue: rank, jid, occurrence.
SERIAL_BITS = 40  # Of a jid: the job's own number.
OCCURRENCE_MAX = (1 << 64) - 1
RUN_ID_CHARS = 200  # A name, three numbers and three dots.
_ONE = struct.Struct(">cQ")
_TWO = struct.Struct(">cQQ")
_LANE = struct.Struct(">cI")
_READY = struct.Struct(">cIQQQ")
_TIMER_ONE = struct.Struct(">cQcQ")
_TIMER_TWO = struct.Struct(">cQcQQ")
_NS = struct.Struct(">cI")
_DEAD = struct.Struct(">cIQQQ")
_PAIR = struct.Struct(">QQ")
_THREE = struct.Struct(">cQQQ")
_PARKED_PREFIX = struct.Struct(">ccQ")

# The keys that every run needs cost no call of Python.
job: Callable[[int], bytes] = partial(_ONE.pack, JOB)  # jid
state: Callable[[int], bytes] = partial(_ONE.pack, STATE)  # jid
run: Callable[[int, int], bytes] = partial(_TWO.pack, RUN)  # jid, occurrence
ledger: Callable[[int, int], bytes] = partial(_TWO.pack, LEDGER)  # jid, scheduled time
stretch: Callable[[int, int], bytes] = partial(_TWO.pack, STRETCH)  # jid, scheduled time
lane: Callable[[int], bytes] = partial(_LANE.pack, LANE)  # its number
# lane, rank, jid, occurrence
ready: Callable[[int, int, int, int], bytes] = partial(_READY.pack, READY)
lease: Callable[[int, int], bytes] = partial(_TWO.pack, LEASE)  # session, token
lease_value: Callable[[int, int], bytes] = _PAIR.pack  # jid, occurrence


def streak(jid: int) -> bytes:
    return _ONE.pack(STREAK, jid)


def warned(jid: int) -> bytes:
    return _ONE.pack(WARNED, jid)


def catch_up(jid: int) -> bytes:
    return _ONE.pack(CATCH_UP, jid)


def broken(jid: int) -> bytes:
    return _ONE.pack(BROKEN, jid)


def room(jid: int) -> bytes:
    return _ONE.pack(ROOM, jid)


def resume(jid: int) -> bytes:
    return _ONE.pack(RESUME, jid)


def former(jid: int, version: int) -> bytes:
    return _TWO.pack(FORMER, jid, version)


def piece(serial: int, offset: int) -> bytes:
    return _TWO.pack(PIECE, serial, offset)


def jid_of(namespace: int, serial: int) -> int:
    return namespace << SERIAL_BITS | serial


def namespace_of(jid: int) -> int:
    return jid >> SERIAL_BITS


def occurrence_of(scheduled_ms: int, serial: int = 0) -> int:
    return scheduled_ms << 16 | serial


def scheduled_of(occurrence: int) -> int:
    return occurrence >> 16


def ended(jid: int, occurrence: int) -> bytes:
    return _TWO.pack(ENDED, jid, OCCURRENCE_MAX - occurrence)


def carried(jid: int, occurrence: int) -> bytes:
    return _TWO.pack(CARRIED, jid, occurrence)


def run_of(key: bytes) -> tuple[int, int]:
    """The jid and occurrence at the end of a key."""
    return _PAIR.unpack(key[-16:])


def ended_of(key: bytes) -> tuple[int, int]:
    jid, inverted = _PAIR.unpack(key[-16:])
    return jid, OCCURRENCE_MAX - inverted


def scheduled_at(key: bytes) -> int:
    """The scheduled time at the end of the key of a ledger entry or stretch."""
    return int.from_bytes(key[-8:], "big")


def job_timer(at_ms: int, jid: int) -> bytes:
    return _TIMER_ONE.pack(TIMER, at_ms, WAKE_JOB, jid)


def run_timer(at_ms: int, jid: int, occurrence: int) -> bytes:
    return _TIMER_TWO.pack(TIMER, at_ms, WAKE_RUN, jid, occurrence)


def purge_timer(at_ms: int, jid: int, occurrence: int) -> bytes:
    return _TIMER_TWO.pack(TIMER, at_ms, WAKE_PURGE, jid, occurrence)


def return_timer(at_ms: int, jid: int, occurrence: int) -> bytes:
    return _TIMER_TWO.pack(TIMER, at_ms, WAKE_RETURN, jid, occurrence)


def flow_timer(at_ms: int, jid: int, occurrence: int) -> bytes:
    return _TIMER_TWO.pack(TIMER, at_ms, WAKE_FLOW, jid, occurrence)


def namespace_deletion_timer(at_ms: int, number: int) -> bytes:
    return _TIMER_ONE.pack(TIMER, at_ms, WAKE_DELETION, number)


def room_timer(at_ms: int, jid: int) -> bytes:
    return _TIMER_ONE.pack(TIMER, at_ms, WAKE_ROOM, jid)


def backlog_timer(at_ms: int, jid: int) -> bytes:
    return _TIMER_ONE.pack(TIMER, at_ms, WAKE_BACKLOG, jid)


def held_timer(at_ms: int, jid: int) -> bytes:
    return _TIMER_ONE.pack(TIMER, at_ms, WAKE_HELD, jid)


def resume_timer(at_ms: int, jid: int) -> bytes:
    return _TIMER_ONE.pack(TIMER, at_ms, WAKE_RESUME, jid)


def waves_timer(at_ms: int, jid: int, looked: int, place: bytes) -> bytes:
    """How many waves were looked at, and where among the flows by age to go on."""
    return _TIMER_ONE.pack(TIMER, at_ms, WAKE_WAVES, jid) + looked.to_bytes(4, "big") + place


def limits_timer(at_ms: int, jid: int, occurrence: int) -> bytes:
    """From which run of a job on timers are to be set anew."""
    return _TIMER_TWO.pack(TIMER, at_ms, WAKE_LIMITS, jid, occurrence)


def quota_timer(at_ms: int, number: int) -> bytes:
    return _TIMER_ONE.pack(TIMER, at_ms, WAKE_QUOTA, number)


def quota_wait(number: int, since_ms: int, jid: int) -> bytes:
    return in_namespace(QUOTA_WAIT, number) + _PAIR.pack(since_ms, jid)


def first_quota_wait(number: int) -> bytes:
    return in_namespace(FIRST_QUOTA_WAIT, number)


def unique_timer(at_ms: int, jid: int, key: str) -> bytes:
    return _TIMER_ONE.pack(TIMER, at_ms, WAKE_UNIQUE, jid) + key.encode()


def timers_from(at_ms: int) -> bytes:
    return TIMER + at_ms.to_bytes(8, "big")


def timer_at(key: bytes) -> int:
    """Where a timer stands: the instant at which it fires, with the bit of its range."""
    return int.from_bytes(key[1:9], "big")


def instant(timer_at_ms: int) -> int:
    """When a timer fires that stands there."""
    return timer_at_ms & ~LATER


def ready_in(lane: int) -> bytes:
    return _LANE.pack(READY, lane)


def rank_of(key: bytes) -> int:
    """The rank in the key of a ready run."""
    return int.from_bytes(key[5:13], "big")


def lanes_of(namespace: int, queue: str) -> bytes:
    return _NS.pack(LANE_OF, namespace) + queue.encode() + b"\0"


def lane_of(
    namespace: int, queue: str, priority: int, handler: str, labels: list[tuple[str, str]]
) -> bytes:
    wanted = "\0".join([handler, *(f"{name}={value}" for name, value in labels)])
    return lanes_of(namespace, queue) + bytes([priority]) + wanted.encode()


# In BUSY a label begins with LABEL, and where there is none left stands LAST. Texts carry their
# length, so that none reads as the beginning of another.
LABEL = b"\x02"
LAST = b"\x01"


def text(value: str) -> bytes:
    data = value.encode()
    return len(data).to_bytes(2, "big") + data


def label(name: str, value: str) -> bytes:
    return LABEL + text(name) + text(value)


def busy_in(namespace: int, queue: str) -> bytes:
    return _NS.pack(BUSY, namespace) + text(queue)


def busy(
    namespace: int, queue: str, labels: Iterable[tuple[str, str]], handler: str, lane: int
) -> bytes:
    """A lane with ready runs; labels by name."""
    wanted = b"".join(label(name, value) for name, value in labels)
    return busy_in(namespace, queue) + wanted + LAST + text(handler) + lane.to_bytes(4, "big")


def place_of(busy: bytes) -> tuple[int, str]:
    """The namespace and queue of a lane with ready runs."""
    end = 7 + int.from_bytes(busy[5:7], "big")
    return int.from_bytes(busy[1:5], "big"), busy[7:end].decode()


def lane_in(busy: bytes) -> int:
    return int.from_bytes(busy[-4:], "big")


def parked_by_job(jid: int) -> bytes:
    return _PARKED_PREFIX.pack(PARKED, b"j", jid)


def parked_by_key(namespace: int, key: str) -> bytes:
    return PARKED + b"k" + namespace.to_bytes(4, "big") + key.encode() + b"\0"


def parked_in(owner: bytes, lane: int) -> bytes:
    """The wait queue of a lane's runs that wait for a slot of this owner."""
    return owner + lane.to_bytes(4, "big")


def parked(wait_queue: bytes, rank_ms: int, jid: int, occurrence: int) -> bytes:
    return wait_queue + rank_ms.to_bytes(8, "big") + _PAIR.pack(jid, occurrence)


def wait_queue_in(parked: bytes) -> bytes:
    """The wait queue that a parked run stands in."""
    return parked[:-PLACE]


def first_waiting(wait_queue: bytes) -> bytes:
    """Of a wait queue, or as a prefix of all those of one owner."""
    return FIRST_WAITING + wait_queue[1:]


def owner_in(first_waiting: bytes) -> bytes:
    """What the marks of all queues of the same owner begin with."""
    return first_waiting[:-4]


def limit_key(namespace: int, key: str) -> bytes:
    return _NS.pack(LIMIT_KEY, namespace) + key.encode()


def name_of_limit_key(key: bytes) -> str:
    return key[_NS.size :].decode()


def session(worker: str) -> bytes:
    return SESSION + worker.encode()


def worker_of(owner: str, worker: str) -> str:
    """The name under which a worker is known of whose access token is for one namespace, or for all
    ("" then). Neither has a slash, so no two of them have one name, and none that of a worker
    without an owner: that is its id."""
    return f"{owner}/{worker}"


def owner_of(name: str) -> str:
    """The namespace that a worker's token is for; "" for all, or where there is no token."""
    return name.rpartition("/")[0]


def worker_id(name: str) -> str:
    """As it calls itself, and as people see it."""
    return name.rpartition("/")[2]


def unique(jid: int, key: str) -> bytes:
    return _ONE.pack(UNIQUE, jid) + key.encode()


def namespace(name: str) -> bytes:
    return NAMESPACE + name.encode()


def usage(number: int) -> bytes:
    return _NS.pack(USAGE, number)


def queue(number: int, name: str) -> bytes:
    return _NS.pack(QUEUE, number) + name.encode()


def calendar(number: int, name: str) -> bytes:
    return _NS.pack(CALENDAR, number) + name.encode()


def alert(number: int, name: str) -> bytes:
    return _NS.pack(ALERT, number) + name.encode()


def access(name: str) -> bytes:
    return ACCESS + name.encode()


def former_secret(name: str) -> bytes:
    return FORMER_SECRET + name.encode()


def token_use(name: str) -> bytes:
    return TOKEN_USE + name.encode()


def provider(name: str) -> bytes:
    return PROVIDER + name.encode()


def target_secret(number: int, name: str) -> bytes:
    return _NS.pack(TARGET_SECRET, number) + name.encode()


def secret_users(number: int, name: str) -> bytes:
    """The jobs of a namespace that name a secret. By a hash, so that all places are of a length."""
    return _NS.pack(SECRET_USER, number) + blake2b(name.encode(), digest_size=8).digest()


def secret_user(number: int, name: str, jid: int) -> bytes:
    return secret_users(number, name) + jid.to_bytes(8, "big")


def secret(digest: bytes) -> bytes:
    return SECRET + digest


def namespace_deletion(number: int) -> bytes:
    return _NS.pack(NAMESPACE_DELETION, number)


def job_name(number: int, name: str) -> bytes:
    return _NS.pack(NAME, number) + name.encode()


def name_at(key: bytes) -> str:
    """The name of a job in the key of `job_name`."""
    return key[_NS.size :].decode()


def in_namespace(table: bytes, number: int) -> bytes:
    return _NS.pack(table, number)


def of_job(table: bytes, jid: int) -> bytes:
    return _ONE.pack(table, jid)


def dead(number: int, ended_at_ms: int, jid: int, occurrence: int) -> bytes:
    return _DEAD.pack(DEAD, number, OCCURRENCE_MAX - ended_at_ms, jid, occurrence)


def flow(jid: int, occurrence: int) -> bytes:
    return _TWO.pack(FLOW, jid, occurrence)


def flow_by_age(number: int, created_at_ms: int, jid: int, occurrence: int) -> bytes:
    return _DEAD.pack(FLOW_BY_AGE, number, OCCURRENCE_MAX - created_at_ms, jid, occurrence)


def steps_of(jid: int, occurrence: int) -> bytes:
    return _TWO.pack(STEP, jid, occurrence)


def step(flow_jid: int, flow_occurrence: int, jid: int) -> bytes:
    return _THREE.pack(STEP, flow_jid, flow_occurrence, jid)


def notices_of(jid: int, occurrence: int) -> bytes:
    return _TWO.pack(NOTICE, jid, occurrence)


def notice(flow_jid: int, flow_occurrence: int, jid: int) -> bytes:
    return _THREE.pack(NOTICE, flow_jid, flow_occurrence, jid)


def survey(jid: int, occurrence: int) -> bytes:
    return _TWO.pack(SURVEY, jid, occurrence)


def surveyed_of(jid: int, occurrence: int) -> bytes:
    return _TWO.pack(SURVEYED, jid, occurrence)


def surveyed(flow_jid: int, flow_occurrence: int, place: int) -> bytes:
    return _THREE.pack(SURVEYED, flow_jid, flow_occurrence, place)


def in_survey_of(jid: int, occurrence: int) -> bytes:
    return _TWO.pack(IN_SURVEY, jid, occurrence)


def in_survey(flow_jid: int, flow_occurrence: int, jid: int) -> bytes:
    return _THREE.pack(IN_SURVEY, flow_jid, flow_occurrence, jid)


def depends(jid: int) -> bytes:
    return _ONE.pack(DEPENDS, jid)


def edge(upstream: int, downstream: int) -> bytes:
    return _TWO.pack(EDGE, upstream, downstream)


def idempotency(digest: bytes) -> bytes:
    return IDEMPOTENCY + digest


def idempotency_by_age(place: int) -> bytes:
    return _ONE.pack(IDEMPOTENCY_BY_AGE, place)


def audit(place: int) -> bytes:
    return _ONE.pack(AUDIT, OCCURRENCE_MAX - place)


def after(prefix: bytes) -> bytes:
    """The first key behind all keys that begin with the prefix."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix), "big")


LEDGER_END = after(LEDGER)


def run_id(name: str, jid: int, occurrence: int) -> str:
    """What users see of a run's key."""
    serial = occurrence & 0xFFFF
    if serial:
        return f"{name}.{jid}.{occurrence >> 16}.{serial}"
    return f"{name}.{jid}.{occurrence >> 16}"


def run_key(run_id: str) -> tuple[int, int] | None:
    """The jid and occurrence of a run id, or None if it is none."""
    parts = run_id.split(".")
    if len(run_id) > RUN_ID_CHARS or not 3 <= len(parts) <= 4:
        return None
    try:
        jid, scheduled_ms = int(parts[1]), int(parts[2])
        serial = int(parts[3]) if len(parts) == 4 else 0
    except ValueError:
        return None
    # What is left of a number that is too large; of a negative one, -1.
    if jid >> 64 or scheduled_ms >> 48 or serial >> 16:
        return None
    return jid, scheduled_ms << 16 | serial
