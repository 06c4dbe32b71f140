"""Why a run has not started, and why a job does not fire: what stands in the way, in words.

The questions are those that firing and granting ask, in their order, so that an explanation cannot
differ from the rules. What only the leader knows, the workers, is handed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from copy import copy

from ...proto.v1 import job_pb2, run_pb2
from ..calls import runs as run_calls
from ..calls.jobs import find
from ..core.instants import clock_text, timestamp
from ..firing import bring_back, on_failure
from ..flows import graph, survey, waves
from ..flows.wave import Wave, find_wave
from ..model import concurrency_key, keys, phases
from ..model.entities import Job, Run
from ..model.record import (
    JobRecord,
    KeyRecord,
    LabelRecord,
    LaneRecord,
    QueueRecord,
    RunRecord,
    StateRecord,
    UsageRecord,
)
from ..model.specs import EXECUTORS
from ..model.view import View
from ..model.workers import Worker, Workers, pulling
from ..occurrences import next_time, upcoming
from ..runs import grants, lanes, overlap, set_aside
from ..tenants import audit_log, namespaces, quota

Explanation = run_pb2.Explanation
Obstacle = run_pb2.Obstacle
Obstacles = Iterator[Obstacle]
AHEAD = 1_000  # Runs that are counted in front of one; more are "over a thousand".
NAMED = 10  # Handlers or queues that a sentence lists.
WAVES = 100  # The newest waves that are asked for a step that waits.


def explain_run(view: View, request: run_pb2.ExplainRunRequest, workers: Workers) -> Explanation:
    run = run_calls.find(view, request.namespace, request.run)
    found = list(_of_run(view, run, workers))
    return Explanation(summary=_summary(f"The run {request.run}", found), obstacles=found)


def explain_job(view: View, request: job_pb2.ExplainJobRequest, workers: Workers) -> Explanation:
    job = find(view, request.namespace, request.job)
    found = list(_of_job(view, job, workers))
    return Explanation(summary=_summary(f"The job {job.definition.name}", found), obstacles=found)


def _summary(who: str, found: Sequence[Obstacle]) -> str:
    if not found:
        return f"{who} goes on with the next change; nothing stands in its way."
    more = f" ({len(found) - 1} more below)" if len(found) > 1 else ""
    return f"{who}: {found[0].message}{more}."


def _obstacle(kind: Obstacle.Kind.ValueType, message: str, until_ms: int = 0) -> Obstacle:
    return Obstacle(kind=kind, message=message, until=timestamp(until_ms) if until_ms else None)


def _leased(count: int, about: str) -> str:
    return f"1 run {about} is leased" if count == 1 else f"{count} runs {about} are leased"


def _of_run(view: View, run: Run, workers: Workers) -> Obstacles:
    record = run.record
    if record.ended_at_ms:
        word = run_pb2.RunState.Name(record.state).removeprefix("RUN_STATE_")
        message = f"it ended as {word} at {clock_text(record.ended_at_ms)}"
        yield _obstacle(Obstacle.KIND_ENDED, message + on_failure.explained(view, run))
    elif record.phase == phases.LEASED:
        asked = "; its end was asked for" if record.cancel_at_ms else ""
        since = clock_text(record.leased_at_ms)
        message = f"{keys.worker_id(record.worker)} has it since {since}, attempt {record.attempt}"
        yield _obstacle(Obstacle.KIND_RUNNING, message + asked, record.deadline_at_ms)
    elif record.phase in phases.WAITING:
        yield _held(view, run)
    elif record.phase == phases.DELAYED:
        released = record.attempts and record.attempts[-1].end == run_pb2.Attempt.END_RELEASED
        why = "was given back" if released else "failed"
        message = f"the last attempt {why}; the next one begins at {clock_text(record.retry_at_ms)}"
        yield _obstacle(Obstacle.KIND_RETRY_WAIT, message, record.retry_at_ms)
    elif run.job.state.state == next_time.BROKEN:
        yield _broken(view, run.jid)
    else:
        lane = view.need(keys.lane(record.lane), LaneRecord)
        yield from _slots(view, run)
        yield from _queue(view, lane)
        yield from _namespace(view, run.job)
        if record.phase != phases.PARKED:
            yield from _crew(view, run, lane, run.job.definition.namespace, workers)


def _held(view: View, run: Run) -> Obstacle:
    if run.record.due_at_ms > view.now_ms:
        message = f"it is due at {clock_text(run.record.due_at_ms)}"
        return _obstacle(Obstacle.KIND_NOT_DUE, message, run.record.due_at_ms)
    if run.record.phase == phases.HALTED:
        message = "it came while its job was paused; resume the job"
        return _obstacle(Obstacle.KIND_JOB_PAUSED, message, run.job.state.pause_until_ms)
    if run.job.state.quota_wait_since_ms:
        usage = namespaces.usage_of(view, run.jid)
        most = namespaces.live_runs(view, run.job.definition.namespace)
        message = (
            f"it waits for the quota of the namespace '{run.job.definition.namespace}': "
            f"{quota.used(usage)} runs are under way, and the most is {most}"
        )
        return _obstacle(Obstacle.KIND_QUOTA, message)
    live, held = run.job.state.live - run.job.state.held, run.job.state.held - run.job.state.later
    others = "1 run under way has" if live == 1 else f"{live} runs under way have"
    message = (
        f"the job's overlap policy holds it back until {others} ended; {held} "
        f"{'is' if held == 1 else 'are'} held back"
    )
    return _obstacle(Obstacle.KIND_OVERLAP, message)


def _slots(view: View, run: Run) -> Obstacles:
    """The limits of its job and key, whether it was parked for them already or not."""
    limit = run.job.definition.template.spec.concurrency
    if run.record.parking == RunRecord.PARKING_JOB or (
        limit.job and run.job.state.running >= limit.job
    ):
        message = f"{_leased(run.job.state.running, 'of the job')}, and its limit is {limit.job}"
        yield _obstacle(Obstacle.KIND_JOB_LIMIT, message)
    parked = run.record.parking == RunRecord.PARKING_KEY
    key = run.record.limit_key if parked else concurrency_key.of(view, run)
    if key:
        shared = view.get(keys.limit_key(keys.namespace_of(run.jid), key), KeyRecord)
        running = shared.running if shared is not None else 0
        if parked or 0 < limit.key_limit <= running:
            most = limit.key_limit
            holds = f"the limit is {most}" if most else "there is no limit by now"
            if not 0 < most <= running:
                holds += "; it goes on when one of these ends"
            about = f"with the key '{key}'"
            message = f"{_leased(running, about)}, and {holds}"
            yield _obstacle(Obstacle.KIND_KEY_LIMIT, message)


def _queue(view: View, lane: LaneRecord) -> Obstacles:
    queue = view.need(keys.queue(lane.namespace, lane.queue), QueueRecord)
    name = f"the queue '{lane.queue}'"
    if queue.paused:
        why = f" ({queue.pause_reason})" if queue.pause_reason else ""
        yield _obstacle(Obstacle.KIND_QUEUE_PAUSED, f"{name} is paused{why}; resume it")
    if queue.concurrency and queue.leased >= queue.concurrency:
        message = f"{_leased(queue.leased, f'of {name}')}, and its limit is {queue.concurrency}"
        yield _obstacle(Obstacle.KIND_QUEUE_LIMIT, message)
    if queue.rate:
        present = copy(queue)
        grants.refill(view, present)
        if present.allowance < 1000:
            wait_ms = -(-(1000 - present.allowance) // queue.rate)
            message = f"{name} grants {queue.rate} leases a second, and those are used up for now"
            yield _obstacle(Obstacle.KIND_QUEUE_RATE, message, view.now_ms + wait_ms)


def _namespace(view: View, job: Job) -> Obstacles:
    quota = namespaces.quota(view, job.definition.namespace).leases
    usage = view.get(keys.usage(keys.namespace_of(job.jid)), UsageRecord)
    if quota and usage is not None and usage.leased >= quota:
        about = f"of the namespace '{job.definition.namespace}'"
        message = f"{_leased(usage.leased, about)}, and its quota is {quota}"
        yield _obstacle(Obstacle.KIND_NAMESPACE_LIMIT, message)


def _crew(
    view: View, run: Run, lane: LaneRecord, namespace: str,
    workers: Workers,
) -> Obstacles:  # fmt: skip
    here = pulling(workers, namespace, lane.queue)
    fitting = [worker for worker in here if _fits(lane, worker)]
    if not fitting:
        yield from _no_worker(lane, here, workers)
    elif not any(worker.offer.credits > 0 for worker in fitting):
        slots = sum(worker.slots for worker in fitting)
        message = f"all {slots} slots of {len(fitting)} fitting workers are busy"
        yield _obstacle(Obstacle.KIND_NO_FREE_SLOT, message)
    ahead = _ahead(view, run)
    if ahead:
        count = f"over {AHEAD}" if ahead > AHEAD else str(ahead)
        message = f"{count} runs of the same kind in its queue go first"
        yield _obstacle(Obstacle.KIND_OTHERS_FIRST, message)


def _no_worker(lane: LaneRecord, here: Sequence[Worker], workers: Workers) -> Obstacles:
    """That no worker can take runs of a lane, and what would."""
    kind = "executor" if lane.handler in EXECUTORS else "handler"
    wanted = f"the {kind} '{lane.handler}'"
    if not here:
        queues = _some({queue for worker in workers for queue in worker.offer.queues})
        elsewhere = f"; workers that are connected pull from: {queues}" if workers else ""
        message = f"no worker pulls from the queue '{lane.queue}'; start one that has {wanted}"
        yield _obstacle(Obstacle.KIND_NO_WORKER, message + elsewhere)
        return
    able = [worker for worker in here if _fits(LaneRecord(handler=lane.handler), worker)]
    if not able:
        known = _some({name for worker in here for name in worker.offer.handlers})
        message = (
            f"no worker connected to the queue '{lane.queue}' has {wanted}; "
            f"workers here have: {known or 'no executor'}"
        )
        yield _obstacle(Obstacle.KIND_NO_FITTING_WORKER, message)
    elif not any(_fits(lane, worker) for worker in able):
        labels = " and ".join(f"{label.name}={label.value}" for label in lane.labels)
        count = "the one worker" if len(able) == 1 else f"none of {len(able)} workers"
        message = (
            f"{count} that has {wanted} {'lacks' if len(able) == 1 else 'has'} the label {labels}"
        )
        yield _obstacle(Obstacle.KIND_NO_FITTING_WORKER, message)


def _some(names: AbstractSet[str]) -> str:
    """Names in order, as many as a line holds."""
    shown = sorted(names)[:NAMED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _fits(lane: LaneRecord, worker: Worker) -> bool:
    return lanes.fits(lane, worker.offer.handlers, dict(worker.offer.labels))


def _ahead(view: View, run: Run) -> int:
    own = keys.ready(run.record.lane, run.record.rank_ms, run.jid, run.occurrence)
    lane = view.need(keys.lane(run.record.lane), LaneRecord)
    first = keys.ready_in(run.record.lane) + lane.ready_from
    count = 0
    for _ in view.stored.scan(first, own):
        count += 1
        if count > AHEAD:
            break
    return count


def _of_job(view: View, job: Job, workers: Workers) -> Obstacles:
    if job.state.state == next_time.PAUSED:
        yield _paused(view, job)
    if job.state.state == next_time.BROKEN:
        yield _broken(view, job.jid)
        return
    if job.state.state == next_time.FINISHED:
        message = "nothing is left to happen; give it another schedule, or trigger it"
        yield _obstacle(Obstacle.KIND_FINISHED, message)
    yield from _still(view, job)
    yield from _quota(view, job)
    yield from _overlap(view, job)
    yield from _backlog(job.state)
    yield from _upstream(view, job)
    ahead = list(_next(view, job))
    is_none = bool(ahead) and ahead[0].kind == Obstacle.KIND_EXCLUDED
    if is_none:
        yield from ahead
    yield from _no_worker(
        _wanted(job.definition),
        pulling(workers, job.definition.namespace, _wanted(job.definition).queue),
        workers,
    )
    if not is_none:
        yield from ahead


def _paused(view: View, job: Job) -> Obstacle:
    until = f" until {clock_text(job.state.pause_until_ms)}" if job.state.pause_until_ms else ""
    actor = audit_log.paused_by(view, job)
    by = f" by {actor}" if actor else ""
    why = f" because of: {job.state.pause_reason}" if job.state.pause_reason else ""
    then = "" if until else f"; 'raftsched job resume {job.definition.name}' lets it go on"
    message = f"it is paused{until}{by}{why}{then}"
    return _obstacle(Obstacle.KIND_JOB_PAUSED, message, job.state.pause_until_ms)


def _wanted(job: JobRecord) -> LaneRecord:
    """What runs of a job ask of a worker, also before there was one."""
    spec = job.full_spec()
    labels = tuple(LabelRecord(name=name, value=spec.worker_labels[name])
                   for name in sorted(spec.worker_labels))  # fmt: skip
    return LaneRecord(
        handler=lanes.handler_of(spec.action), labels=labels, queue=spec.queue or "default"
    )


def _still(view: View, job: Job) -> Obstacles:
    until_ms = bring_back.stands_until(view, job)
    if until_ms:
        then = f"'raftsched job resume {job.definition.name}' brings it back"
        if why := bring_back.why_not(view, job):
            then = f"it cannot be brought back, since {why}: delete it and create it anew"
        message = (
            f"it stands still until {clock_text(until_ms)}, since it decided on all times before "
            f"by a clock that was ahead; {then}"
        )
        yield _obstacle(Obstacle.KIND_NOT_DUE, message, until_ms)


def _broken(view: View, jid: int) -> Obstacle:
    record = set_aside.find(view, jid)
    why = f" at {clock_text(record.at_ms)}: {record.reason}" if record is not None else ""
    message = f"the job was set aside{why}; mend that, then repair the job or change its spec"
    return _obstacle(Obstacle.KIND_JOB_BROKEN, message)


def _quota(view: View, job: Job) -> Obstacles:
    most = namespaces.live_runs(view, job.definition.namespace)
    usage = view.get(keys.usage(keys.namespace_of(job.jid)), UsageRecord)
    if most and usage is not None and quota.used(usage) >= most:
        message = (
            f"{quota.used(usage)} runs of the namespace '{job.definition.namespace}' are under "
            f"way, and its quota is {most}: a scheduled time that comes now is skipped, all else "
            "waits"
        )
        yield _obstacle(Obstacle.KIND_QUOTA, message)


def _overlap(view: View, job: Job) -> Obstacles:
    verdict = overlap.judge(view, job)
    if verdict in (overlap.SKIP, overlap.HOLD, overlap.HOLD_NEWEST):
        fate = "skipped" if verdict is overlap.SKIP else "held back"
        live = job.state.live - job.state.held
        runs = "a run is" if live == 1 else f"{live} runs are"
        message = f"{runs} under way: a scheduled time that comes now is {fate}"
        yield _obstacle(Obstacle.KIND_OVERLAP, message)


def _backlog(state: StateRecord) -> Obstacles:
    backlog = state.backlog
    if backlog:
        left = sum(part.left for part in backlog)
        pace_ms = backlog[0].pace_ms
        how = f"one each {pace_ms} ms" if pace_ms else "as the namespace's other jobs leave room"
        times = "past scheduled time waits" if left == 1 else "past scheduled times wait"
        message = f"{left} {times} to be released, {how}; drop the backlog to give them up"
        yield _obstacle(Obstacle.KIND_OUTAGE_GUARD, message, backlog[0].release_at_ms)


def _upstream(view: View, job: Job) -> Obstacles:
    names = [dependency.job for dependency in job.definition.template.spec.upstream.jobs]
    if not names:
        return
    listed = ", ".join(names)
    prefix = keys.in_namespace(keys.FLOW_BY_AGE, keys.namespace_of(job.jid))
    for looked, (key, _) in enumerate(view.stored.scan(prefix, keys.after(prefix))):
        if looked == WAVES:
            break
        wave = find_wave(view, *keys.run_of(key))
        step = wave.step(view, job.jid) if wave is not None else None
        if wave is None or step is None or step.occurrence:
            continue
        over = {item.jid for item in step.ended if not waves.runs_again(view, item)}
        if step.state == waves.Step.STATE_WAITING or len(over) < len(step.ended):
            missing = ", ".join(_awaited(view, wave, job, names, over))
            flow_jid, flow_occurrence = keys.run_of(key)
            root = view.get(keys.job(flow_jid), JobRecord)
            flow = keys.run_id(root.name if root else "deleted", flow_jid, flow_occurrence)
            message = f"the flow run {flow} waits for {missing}"
            yield _obstacle(Obstacle.KIND_UPSTREAM, message)
            return
    if not job.definition.schedules:
        yield _obstacle(Obstacle.KIND_UPSTREAM, f"it happens after {listed}; no flow run waits now")


def _awaited(view: View, wave: Wave, job: Job, names: list[str], over: set[int]) -> Iterator[str]:
    """Those that a step of a wave still waits for."""
    for name in names:
        source = graph.jid_named(view, keys.namespace_of(job.jid), name)
        if source in over:
            continue
        if source is None or not wave.is_middle(view) or survey.seen(view, wave, [source]):
            yield name


def _next(view: View, job: Job) -> Obstacles:
    """Its next scheduled time that will run, and what is left out before it."""
    if not job.state.next_scheduled_at_ms and not job.state.edits:
        if job.state.after_end and job.state.live > job.state.held:
            message = "its schedule counts from the end of a run, and one is under way"
            yield _obstacle(Obstacle.KIND_RUNNING, message)
        elif not job.definition.schedules and not job.definition.template.spec.upstream.jobs:
            message = "it has no schedule, so it happens only manually; trigger it"
            yield _obstacle(Obstacle.KIND_MANUAL, message)
        return
    try:
        ahead = upcoming.upcoming(view, job)
    except next_time.UnreadableSchedule as unreadable:
        yield _obstacle(Obstacle.KIND_JOB_BROKEN, str(unreadable))
        return
    if not ahead.scheduled_ms:
        message = "no time that will run is known: calendars or edits leave out what lies ahead"
        yield _obstacle(Obstacle.KIND_EXCLUDED, message)
    elif ahead.due_ms > view.now_ms and not bring_back.stands_until(view, job):
        message = f"it is due next at {clock_text(ahead.due_ms)}"
        yield _obstacle(Obstacle.KIND_NOT_DUE, message, ahead.due_ms)
    if ahead.left_out:
        where = "left out before that" if ahead.scheduled_ms else "left out"
        message = f"{where}: {ahead.left_out}"
        yield _obstacle(Obstacle.KIND_EXCLUDED, message)
