"""What a filter lets pass, by brute force: a second reading of the contract, which knows of no
parser and no index. A condition here is a tree of tuples, and a record is the message of the API.
"""

from __future__ import annotations

from raftsched.proto.v1 import common_pb2, job_pb2, run_pb2

# ("is", field, sign, value) | ("not", tree) | ("and", tree, …) | ("or", tree, …)
Tree = tuple[object, ...]
Seen = dict[str, list[str] | int | None]


def text_of(tree: Tree, inside: bool = False) -> str:
    """The filter as somebody would write it."""
    match tree:
        case ("is", field, sign, value):
            escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
            return f'{field} {sign} "{escaped}"'
        case ("not", part):
            assert isinstance(part, tuple)
            return f"NOT {text_of(part, inside=True)}"
        case (word, *parts):
            joined = f" {str(word).upper()} ".join(text_of(one, inside=True) for one in parts)  # type: ignore[arg-type]
            return f"({joined})" if inside and len(parts) > 1 else joined
    raise AssertionError(tree)


def lets_pass(tree: Tree, seen: Seen) -> bool:
    kind = tree[0]
    if kind == "not":
        return not lets_pass(tree[1], seen)  # type: ignore[arg-type]
    if kind in ("and", "or"):
        verdicts = [lets_pass(part, seen) for part in tree[1:]]  # type: ignore[arg-type]
        return (sum(verdicts) == len(verdicts)) if kind == "and" else sum(verdicts) > 0
    _, field, sign, wanted = tree
    has = seen.get(str(field), [])
    text = str(wanted)
    if sign == "!=":
        return not lets_pass(("is", field, "=", wanted), seen)
    if has is None:
        return sign == "=" and text == ""
    if isinstance(has, int):
        if text == "":
            return False
        other = int(text)
        return {"=": has == other, "<": has < other, ">": has > other,
                "<=": has <= other, ">=": has >= other}[str(sign)]  # fmt: skip
    if sign == ":":
        return any(one.lower().count(text.lower()) > 0 for one in has)
    if text[-1:] == "*":
        return any(one[: len(text) - 1] == text[:-1] for one in has)
    return text in has


def of_job(job: job_pb2.Job) -> Seen:
    status, spec = job.status, job.spec
    seen: Seen = {
        "name": [job.name],
        "state": [job_pb2.JobStatus.State.Name(status.state).removeprefix("STATE_")],
        "queue": [spec.queue or "default"],
        "owner": [spec.owner],
        "description": [spec.description],
        "creator": [job.creator],
        "zone": [spec.timing.zone or "UTC"],
        "handler": [spec.action.handler],
        "calendar": list(spec.timing.exclude_calendars),
        "on_failure": [spec.on_failure.job],
        "last_state": [_run_state(status.last_state) if status.last_state else ""],
        "create_time": job.create_time.ToMilliseconds(),
        "update_time": job.update_time.ToMilliseconds(),
        "next_time": _ms(status, "next_due_time"),
    }
    for name in ("team", "tier"):
        seen[f"labels.{name}"] = [spec.labels.get(name, "")]
    return seen


def of_run(run: run_pb2.Run, job: job_pb2.Job) -> Seen:
    seen: Seen = {
        "job": [run.job],
        "state": [_run_state(run.state)],
        "outcome": [run_pb2.Outcome.Name(run.outcome).removeprefix("OUTCOME_")],
        "cause": [run_pb2.Cause.Name(run.cause).removeprefix("CAUSE_")],
        "priority": [common_pb2.Priority.Name(run.priority).removeprefix("PRIORITY_")],
        "queue": [run.queue],
        "handler": [job.spec.action.handler],
        "worker": [run.worker],
        "last_worker": [run.attempts[-1].worker if run.attempts else ""],
        "flow": [run.flow],
        "unique_key": [run.unique_key],
        "concurrency_key": [run.concurrency_key],
        "kind": [run.error.kind],
        "error": [run.error.message],
        "warning": [run.warning],
        "attempt": run.attempt,
        "scheduled_time": run.scheduled_time.ToMilliseconds(),
        "due_time": run.due_time.ToMilliseconds(),
        "start_time": _ms(run, "start_time"),
        "end_time": _ms(run, "end_time"),
    }
    for name in ("team", "tier"):
        seen[f"labels.{name}"] = [{**job.spec.labels, **run.labels}.get(name, "")]
    return seen


def names_state(tree: Tree) -> bool:
    if tree[0] == "is":
        return tree[1] == "state"
    return any(names_state(part) for part in tree[1:])  # type: ignore[arg-type]


def _run_state(number: run_pb2.RunState.ValueType) -> str:
    return run_pb2.RunState.Name(number).removeprefix("RUN_STATE_")


def _ms(message: run_pb2.Run | job_pb2.JobStatus, field: str) -> int | None:
    value = getattr(message, field)
    return int(value.ToMilliseconds()) if value.seconds or value.nanos else None
