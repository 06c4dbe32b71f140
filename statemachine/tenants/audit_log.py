"""The audit log: who changed what, newest first, bounded in number and in time."""

from __future__ import annotations

import re
from itertools import islice

from google.protobuf.message import Message
from google.protobuf.text_format import MessageToString

from ...proto.v1 import job_pb2
from ..core import limits
from ..core.instants import to_ms
from ..model import hiding, keys
from ..model.entities import Job
from ..model.record import AuditEntryRecord, NamespaceRecord, parse
from ..model.view import View

CHANGE_CHARS = 1_024
VALUE_CHARS = 80
LOOKED_AT = 1_000  # Entries that a read searches.
# Signs that would end a line, steer a terminal or turn the direction of text, so that a note reads
# as another one, or as two.
STEERING = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)
# What changed the state of every namespace stands in the log of each.
OF_ALL_NAMESPACES = frozenset({"RestoreBackup", "SetStateTime"})
PURGE = 2  # Old notes that go when a new one comes: more than come in, so it ends.


def add(
    view: View, actor: str, method: str, namespace: str, subject: str, request: Message,
    change: str = "",
) -> None:  # fmt: skip
    """Note a change that somebody made. The oldest note goes when there are too many."""
    meta = view.meta
    entry = AuditEntryRecord(
        at_ms=view.now_ms, actor=on_a_line(actor), method=method, namespace=namespace,
        subject=on_a_line(subject), change=on_a_line(change)[:CHANGE_CHARS],
        revision=view.base + 1,
        request_id=getattr(request, "request_id", ""),
    )  # fmt: skip
    view.put_once(keys.audit(meta.audit_next), entry)
    meta.audit_next += 1
    for _ in range(PURGE):
        if not _forget_oldest(view):
            return


def on_a_line(text: str) -> str:
    """As it is written down: what somebody chose, with signs that steer as their numbers."""
    if text.isascii() and text.isprintable():
        return text
    return STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def paused_by(view: View, job: Job) -> str:
    """Who paused a job; empty if it is not paused, or the newest entries do not say."""
    if job.state.state != job_pb2.JobStatus.STATE_PAUSED:
        return ""
    entries = view.stored.scan(keys.AUDIT, keys.after(keys.AUDIT))  # The newest comes first.
    for key, value in islice(entries, LOOKED_AT):
        entry = parse(key, value, AuditEntryRecord)
        subject = entry.namespace, entry.subject
        if entry.method == "PauseJob" and subject == (
            job.definition.namespace,
            f"job/{job.definition.name}",
        ):
            return entry.actor
    return ""


def _forget_oldest(view: View) -> bool:
    """Drop the oldest note, if there are too many or its namespace keeps it no longer."""
    meta = view.meta
    key = keys.audit(meta.audit_from)
    if meta.audit_next - meta.audit_from <= limits.AUDIT_ENTRIES:
        # One that was written just now is the newest, and stays.
        oldest = view.get(key, AuditEntryRecord)
        assert oldest is not None, f"the audit log has a gap at {meta.audit_from}"
        if oldest.at_ms + _keep_ms(view, oldest.namespace) > view.now_ms:
            return False
    view.delete(key)
    meta.audit_from += 1
    return True


def _keep_ms(view: View, namespace: str) -> int:
    record = view.get(keys.namespace(namespace), NamespaceRecord)
    if record is None or not record.settings.HasField("keep_audit"):
        return limits.KEEP_AUDIT_MS
    return to_ms(record.settings.keep_audit)


def difference(before: Message, after: Message, path: str = "") -> str:
    """What an update changed, for people: `spec.priority: LOW to HIGH; …`."""
    parts: list[str] = []
    for field in before.DESCRIPTOR.fields:
        name = f"{path}{field.name}"
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old == new:
            continue
        kind = field.message_type
        if field.full_name in hiding.FIELDS:
            parts.append(f"{name}: {_unveiled(before, after, field.name)}")
        elif (
            kind is not None
            and not field.is_repeated
            and not kind.full_name.startswith("google.protobuf.")
        ):
            parts.append(difference(old, new, f"{name}."))
        else:
            parts.append(f"{name}: {_shown(field, old)} to {_shown(field, new)}")
    return "; ".join(part for part in parts if part)


def _unveiled(before: Message, after: Message, name: str) -> str:
    """What may be shown of a field that may hold a secret."""
    old, new = (str(getattr(hiding.hidden(one), name)) for one in (before, after))
    return "changed" if old == new else f"{_cut(old)} to {_cut(new)}"


def _shown(field: object, value: object) -> str:
    kind = getattr(field, "enum_type", None)
    if kind is not None and not getattr(field, "is_repeated", False):
        # What is not known yet is about to be refused.
        known = kind.values_by_number.get(value)
        return str(value if known is None else known.name)
    if isinstance(value, Message):
        text = MessageToString(value, as_one_line=True)
    elif isinstance(value, bytes):
        text = f"{len(value)} bytes"
    else:
        text = str(value)
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}…"
