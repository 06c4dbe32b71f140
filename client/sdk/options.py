"""What may be said about a call of the typed methods, beside what it is about."""

from __future__ import annotations

from typing import Any, TypedDict, cast


class EachCall(TypedDict, total=False):
    """About any call."""

    # Instead of the client's own. An empty one means what the contract says: "default", or all.
    namespace: str
    # Seconds until the call has to end; without it the client's own.
    timeout: float | None
    # Ask this node and no other.
    endpoint: str


class ReadOptions(EachCall, total=False):
    """About a read."""

    # Any node may answer from what it has.
    stale: bool
    # Answer only from a state at or after this "change.position".
    min_revision: str


class Writing(EachCall, total=False):
    """About a write."""

    # Makes the write one and the same however often it is sent. Empty: a fresh one.
    request_id: str
    # Check everything, change nothing, answer as if it had been done.
    validate_only: bool


# These are for the call path; the others are fields of the request.
OF_THE_CALL = ("timeout", "endpoint", "stale", "min_revision")


def of_the_call(options: Any) -> Any:  # noqa: ANN401  # A part of any of the above.
    return {word: options[word] for word in OF_THE_CALL if word in options}


def parted(options: Any) -> tuple[Any, Writing]:  # noqa: ANN401  # SpecOptions and Writing.
    """What is said about a job, and what about the call that writes it."""
    words = Writing.__optional_keys__
    spec = {word: value for word, value in options.items() if word not in words}
    writing = {word: value for word, value in options.items() if word in words}
    return spec, cast(Writing, writing)


def fill(request: Any, options: Any, namespace: str) -> None:  # noqa: ANN401
    """Write what the options say into a request; its namespace, unless it has one already."""
    field = request.DESCRIPTOR.fields_by_name.get("namespace")
    if field is not None and field.message_type is None and not request.namespace:
        request.namespace = options.get("namespace", namespace)
    for word in ("request_id", "validate_only"):
        if word in options:
            setattr(request, word, options[word])
