"""Field masks: which fields of a resource an update means."""

from __future__ import annotations

from collections.abc import Collection

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from .rejection import Reason, Refused


def merge(source: Message, target: Message, mask: FieldMask, changeable: Collection[str]) -> None:
    """Copy the masked fields; a path to a message replaces all of it, an unset field clears.

    Without a mask, the changeable fields that are set are copied.
    """
    given = {field.name for field, _ in source.ListFields()}
    paths = list(mask.paths) or sorted(given & set(changeable))
    for path in paths:
        if not any(path == top or path.startswith(f"{top}.") for top in changeable):
            raise _wrong(path, f"it cannot be changed; what can: {', '.join(sorted(changeable))}")
        _check(target, path)
    for path in paths:
        _copy(source, target, path.split("."))


def differing(before: Message, after: Message, prefix: str = "") -> list[str]:
    """The paths at which two messages of a kind differ, as an update's mask would name them."""
    paths: list[str] = []
    for field in before.DESCRIPTOR.fields:
        old, new = getattr(before, field.name), getattr(after, field.name)
        path = f"{prefix}{field.name}"
        kind = field.message_type
        ours = kind is not None and not kind.full_name.startswith("google.protobuf.")
        if old == new and not _came_or_went(before, after, field.name):
            continue
        if (
            ours
            and not field.is_repeated
            and before.HasField(field.name) == after.HasField(field.name)
        ):
            paths += differing(old, new, f"{path}.")
        else:
            paths.append(path)
    return paths


def _came_or_went(before: Message, after: Message, name: str) -> bool:
    field = before.DESCRIPTOR.fields_by_name[name]
    return field.has_presence and before.HasField(name) != after.HasField(name)


def _check(message: Message, path: str) -> None:
    descriptor = message.DESCRIPTOR
    *parents, last = path.split(".")
    for name in parents:
        field = descriptor.fields_by_name.get(name)
        if field is None or field.message_type is None or field.is_repeated:
            raise _wrong(path, f"there is no field '{name}' with fields of its own")
        descriptor = field.message_type
    if last not in descriptor.fields_by_name:
        known = ", ".join(sorted(descriptor.fields_by_name))
        raise _wrong(path, f"there is no field '{last}'; there are {known}")


def _copy(source: Message, target: Message, names: list[str]) -> None:
    *parents, last = names
    for name in parents:
        source, target = getattr(source, name), getattr(target, name)
    field = target.DESCRIPTOR.fields_by_name[last]
    target.ClearField(last)
    if field.is_repeated or field.message_type is not None:
        if field.is_repeated or source.HasField(last):
            part = type(target)()
            part.CopyFrom(source)
            for other in part.DESCRIPTOR.fields:
                if other.name != last:
                    part.ClearField(other.name)
            target.MergeFrom(part)
    elif field.containing_oneof is None or source.HasField(last):
        setattr(target, last, getattr(source, last))


def _wrong(path: str, why: str) -> Refused:
    return Refused.because(
        Reason.ERROR_REASON_MASK_INVALID, f"the mask names '{path}': {why}", path=path
    )
