"""Waves through jobs that depend on each other.

A wave begins with a run of a job that others depend on, and carries that run's id and scheduled
time along. When a run of the wave ends, each job downstream looks at its own step of the wave: its
condition is met (then it fires, once), can no longer be met (then it is marked, and so is what
depends on it), or still waits. A step that waits too long is reported as stuck, with what it waits
for; it still fires if that comes.

A wave may be long and wide, so it goes on in steps: who is still to hear of an end stands in the
state (NoticeRecord), and the wave's timer goes on with it.
"""

from __future__ import annotations

from ...proto.v1 import flow_pb2, job_pb2, run_pb2
from ..core import limits
from ..core.instants import ms_or
from ..model import carried, keys
from ..model.entities import Job, Run
from ..model.phases import HALTED, HELD, READY
from ..model.record import (
    FlowRecord,
    JobRecord,
    NoticeRecord,
    RunRecord,
    StepRecord,
    UpstreamRecord,
)
from ..model.view import View
from ..runs import overlap, runs
from ..runs.move import move
from ..tenants import namespaces, quota
from . import survey
from .graph import downstream_from, sources_of
from .wave import Wave, find_wave

Step = flow_pb2.FlowStep
Dependency = job_pb2.Dependency
Join = job_pb2.Upstream
NEVER = limits.INSTANT_MAX_MS
# A job that is over, and what those downstream are to hear.
Notice = tuple[int, NoticeRecord]

MET = {
    Dependency.CONDITION_UNSPECIFIED: frozenset({run_pb2.RUN_STATE_SUCCEEDED}),
    Dependency.CONDITION_SUCCESS: frozenset({run_pb2.RUN_STATE_SUCCEEDED}),
    Dependency.CONDITION_FAILURE: frozenset({run_pb2.RUN_STATE_FAILED}),
    Dependency.CONDITION_ANY_END: frozenset(
        {run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED, run_pb2.RUN_STATE_CANCELLED}
    ),
}


def start(view: View, run: Run) -> None:
    """A run that others wait for begins a wave. It is not under way yet."""
    record = view.change_run(run)
    record.flow_jid, record.flow_occurrence = run.jid, run.occurrence
    key = keys.flow(run.jid, run.occurrence)
    flow = FlowRecord(live=1, created_at_ms=view.now_ms, ahead_ms=NEVER)
    before = view.get(key, FlowRecord)
    if before is not None:
        # What it has left behind counts for nothing, and goes with this one.
        flow.round, flow.timer_at_ms = before.round + 1, before.timer_at_ms
        _take_off_list(view, Wave(run.jid, run.occurrence, before))
    view.put_raw(keys.flow_by_age(keys.namespace_of(run.jid), view.now_ms, run.jid, run.occurrence))
    _put(view, Wave(run.jid, run.occurrence, flow))


def begin_anew(view: View, jid: int, occurrence: int) -> None:
    """The run a wave began with is made once more: nothing stays of what it was before."""
    wave = find_wave(view, jid, occurrence)
    if wave is not None:
        _let_go(view, wave)
        _put(view, wave)


def reopen(view: View, run: Run) -> None:
    """A run of a wave begins once more: what depends on it hears when it ends. It is in no wave if
    that is gone, or has begun anew without it."""
    record = view.change_run(run)
    wave = find_wave(view, record.flow_jid, record.flow_occurrence) if record.flow_jid else None
    if wave is not None and (wave.jid, wave.occurrence) != (run.jid, run.occurrence):
        step = wave.step(view, run.jid)
        wave = wave if step is not None and step.occurrence == run.occurrence else None
    if wave is None:
        record.flow_jid = record.flow_occurrence = 0
        return
    wave.flow.live += 1
    wave.flow.ended_at_ms = 0
    if wave.flow.stuck_since_ms:
        # Nothing looks again at what waits for ever, so its time begins anew.
        wave.flow.stuck_since_ms = view.now_ms
    _put(view, wave)


def runs_again(view: View, ended: UpstreamRecord) -> bool:
    """Whether a run that has ended in a wave was requeued, so that its next end counts."""
    return view.get(keys.run(ended.jid, ended.occurrence), RunRecord) is not None


def run_ended(view: View, run: Run) -> None:
    """A run of a wave has ended: notice the jobs downstream, or begin to."""
    record = run.record
    flow = view.need(keys.flow(record.flow_jid, record.flow_occurrence), FlowRecord)
    wave = Wave(record.flow_jid, record.flow_occurrence, flow)
    flow.live -= 1
    flow.failed |= record.state == run_pb2.RUN_STATE_FAILED
    if run.job.state.has_downstream:
        notice = (
            run.jid,
            NoticeRecord(occurrence=run.occurrence, state=record.state, round=flow.round),
        )
        most = 0 if view.waves_later or view.is_full else limits.STEP
        _notify(view, wave, [notice], most)
    _close(view, wave)


def _notify(view: View, wave: Wave, notices: list[Notice], most: int) -> int:
    """Notice those downstream, at most so many, and what cannot run then to those behind; keep what
    is left over. The last first, so that little is in hand at a time. How many more may be."""
    while notices and most > 0:
        source, notice = notices.pop()
        dead: list[Notice] = []
        for jid in downstream_from(view, source, notice.next_jid):
            cannot_run = _look(view, wave, jid, source, notice) if most > 0 else None
            if cannot_run is None:
                notice.next_jid = jid
                notices.append((source, notice))
                most = 0
                break
            if cannot_run:
                dead.append((jid, NoticeRecord(round=wave.flow.round)))
            most = 0 if view.is_full else most - 1
        notices += dead
    for left in notices:
        _keep(view, wave, left)
    return most


def _keep(view: View, wave: Wave, left: Notice) -> None:
    """Who is to hear of this is left to the wave's timer."""
    jid, notice = left
    key = keys.notice(wave.jid, wave.occurrence, jid)
    before = view.get(key, NoticeRecord)
    wave.flow.notices += before is None or before.round != wave.flow.round
    view.put(key, notice)


def _look(view: View, wave: Wave, jid: int, source: int, notice: NoticeRecord) -> bool | None:
    """One upstream of a step is over: see what that means. Whether others are to hear now that
    the step cannot run. None: the wave must find out more first, and nothing was done."""
    flow = wave.flow
    job = view.job(jid)
    step = wave.step(view, jid)
    is_new = step is None
    if step is None:
        stuck_ms = ms_or(
            job.definition.template.spec.upstream, "stuck_after", limits.STUCK_AFTER_MS
        )
        step = StepRecord(
            state=Step.STATE_WAITING, waiting_since_ms=view.now_ms,
            stuck_at_ms=view.now_ms + stuck_ms, round=flow.round,
        )  # fmt: skip
    before = step.ended
    if notice.state:
        # One that was requeued ends once more, and only its last end counts.
        others = tuple(item for item in step.ended if item.jid != source)
        ended = UpstreamRecord(jid=source, occurrence=notice.occurrence, state=notice.state)
        step.ended = (*others, ended)
    was = step.state
    waited = was == Step.STATE_WAITING and not is_new
    verdict = was
    if was == Step.STATE_WAITING or (was == Step.STATE_CANNOT_RUN and notice.state):
        if not (waited and _waits_on(view, wave, job, step, source, notice)):
            found = _verdict(view, wave, job, step)
            if found is None:
                step.ended = before
                return None
            verdict = found
        flow.waiting += (verdict == Step.STATE_WAITING) - waited
        flow.cannot_run -= was == Step.STATE_CANNOT_RUN != verdict
        if verdict == Step.STATE_WAITING and not waited:
            flow.stuck_since_ms = 0
            flow.ahead_ms = min(flow.ahead_ms, step.stuck_at_ms)
    return _enact(view, wave, job, step, verdict)


def _enact(
    view: View, wave: Wave, job: Job, step: StepRecord,
    verdict: Step.State.ValueType,
) -> bool:  # fmt: skip
    """Carry out what was found about a step, which is put here. Whether others are to hear now
    that it cannot run."""
    flow = wave.flow
    was, step.state = step.state, verdict
    view.put(keys.step(wave.jid, wave.occurrence, job.jid), step)
    if was == verdict:
        return False
    if verdict == Step.STATE_FIRED:
        flow.live += 1
        before, view.subject = view.subject, keys.job(job.jid)
        step.occurrence = _fire(view, wave, job, step)
        view.subject = before
        return False
    if verdict == Step.STATE_WAITING:
        return False
    flow.cannot_run += 1
    return job.state.has_downstream


def _waits_on(
    view: View, wave: Wave, job: Job, step: StepRecord, source: int, notice: NoticeRecord
) -> bool:
    """Whether a step that waits for several surely goes on with that, since one of them ended as
    wanted and another one is to come: the usual case, known without a look at each."""
    upstream, sources = job.definition.template.spec.upstream, sources_of(view, job)
    if upstream.join == Join.JOIN_ANY or source not in sources:
        return False
    if notice.state not in MET[upstream.jobs[sources.index(source)].condition]:
        return False
    if not wave.is_middle(view):
        # Of those that have ended some may be waited for no more.
        return len(step.ended) < len(sources)
    ended = {item.jid for item in step.ended}
    awaited = (jid for jid in sources if jid is not None and jid not in ended)
    return any(survey.is_inside(view, wave, jid) for jid in awaited)


def _verdict(
    view: View, wave: Wave, job: Job, step: StepRecord, *, is_changed: bool = False
) -> Step.State.ValueType | None:
    """What becomes of a step; `is_changed`: its job may wait for one that is not in the wave. None:
    the wave must find out first whether it comes to those that the step waits for."""
    met = lost = 0
    ends = {item.jid: item.state for item in step.ended}
    upstream = job.definition.template.spec.upstream
    awaited: list[int] = []
    for dependency, source in zip(upstream.jobs, sources_of(view, job), strict=True):
        if source in ends:
            if ends[source] in MET[dependency.condition]:
                met += 1
            else:
                lost += 1
        elif source is None or _cannot_run(view, wave, source):
            lost += 1
        else:
            awaited.append(source)
    is_any = upstream.join == Join.JOIN_ANY
    is_settled = met if is_any else lost
    is_middle = wave.is_middle(view)
    if awaited and not is_settled and (is_middle or is_changed):
        inside = survey.inside(view, wave, job, awaited)
        if inside is None:
            return None
        if not is_middle:
            inside = {source for source in inside if not _has_passed(view, wave, source)}
            lost += len(awaited) - len(inside)
        awaited = sorted(inside)
    if is_any:
        if met:
            return Step.STATE_FIRED
        return Step.STATE_WAITING if awaited else Step.STATE_CANNOT_RUN
    if lost or not (met or awaited):
        return Step.STATE_CANNOT_RUN
    return Step.STATE_WAITING if awaited else Step.STATE_FIRED


def _has_passed(view: View, wave: Wave, jid: int) -> bool:
    """Whether all that a job waits for had ended in a wave before it waited for that."""
    if wave.flow.notices or wave.step(view, jid) is not None:
        return False
    for source in sources_of(view, view.job(jid)):
        if source is None:
            continue
        step = wave.step(view, source)
        occurrence = wave.occurrence if source == wave.jid else step.occurrence if step else 0
        if occurrence:
            is_open = view.get(keys.run(source, occurrence), RunRecord) is not None
        elif step is not None:
            is_open = step.state == Step.STATE_WAITING
        else:
            is_open = bool(survey.seen(view, wave, [source]))
        if is_open:
            return False
    return True


def look_again(view: View, jid: int) -> None:
    """A job waits for others than before: look at the waves in which it waits, in steps."""
    view.put_later(keys.waves_timer(keys.LATER | view.now_ms, jid, 0, b""))


def wake_waves(view: View, jid: int, looked: int, place: bytes) -> None:
    """Look at some more waves in which a job that was changed may wait, the newest first."""
    if view.get(keys.job(jid), JobRecord) is None:
        return
    prefix = keys.in_namespace(keys.FLOW_BY_AGE, keys.namespace_of(jid))
    for key in view.scan_stored(prefix + place, keys.after(prefix)):
        if looked % limits.STEP == limits.STEP - 1 or view.is_full:
            at_ms = keys.LATER | view.now_ms
            view.put_later(keys.waves_timer(at_ms, jid, looked + 1, key[len(prefix) :]))
            return
        wave = find_wave(view, *keys.run_of(key))
        if wave is not None and not _look_at_changed(view, wave, jid):
            at_ms = keys.LATER | view.now_ms + limits.SURVEY_MS
            view.put_later(keys.waves_timer(at_ms, jid, looked, key[len(prefix) :]))
            return
        looked += 1
        if looked >= limits.WAVES_LOOKED_AT:
            return


def _look_at_changed(view: View, wave: Wave, jid: int) -> bool:
    """Decide anew on a step that waits; False while the wave must find out more for that."""
    step = wave.step(view, jid)
    if step is None or step.state != Step.STATE_WAITING:
        return True
    job = view.job(jid)
    verdict = _verdict(view, wave, job, step, is_changed=True)
    if verdict is None:
        if not wave.flow.notices:
            # Nobody hears of it; but with something left over the wave goes on with its survey.
            nobody = NoticeRecord(next_jid=keys.OCCURRENCE_MAX, round=wave.flow.round)
            _keep(view, wave, (wave.jid, nobody))
        _put(view, wave)
        return False
    if verdict == Step.STATE_WAITING:
        return True
    wave.flow.waiting -= 1
    if _enact(view, wave, job, step, verdict):
        _notify(view, wave, [(jid, NoticeRecord(round=wave.flow.round))], limits.STEP)
    _close(view, wave)
    return True


def _cannot_run(view: View, wave: Wave, jid: int) -> bool:
    step = wave.step(view, jid)
    return step is not None and step.state == Step.STATE_CANNOT_RUN


def _fire(view: View, wave: Wave, job: Job, step: StepRecord) -> int:
    """A step's condition is met: its run begins, at the wave's scheduled time."""
    definition = job.definition
    occurrence = runs.free_occurrence(view, job, keys.scheduled_of(wave.occurrence))
    cause, outcome = run_pb2.CAUSE_UPSTREAM, run_pb2.OUTCOME_RAN
    run = runs.new(job, occurrence, cause, outcome, view.now_ms)
    record = view.change_run(run)
    record.flow_jid, record.flow_occurrence = wave.jid, wave.occurrence
    record.upstream = step.ended
    record.made_in = view.base + 1
    last = step.ended[-1]
    carried.put(view, run, carried.trace_of(view, last.jid, last.occurrence), {})
    usage = namespaces.usage_of(view, job.jid)
    if job.state.state == job_pb2.JobStatus.STATE_PAUSED:
        to = HALTED
    else:
        verdict = overlap.judge_wanted(view, job)
        to = HELD if overlap.make_room(view, job, verdict, occurrence) else READY
    if to == READY and quota.is_taken(view, usage, definition.namespace):
        quota.wait(view, job, usage)
        to = HELD
    move(view, run, to)
    return occurrence


def _close(view: View, wave: Wave) -> None:
    """A wave with nothing under way, nothing to notice and nothing to wait for has ended."""
    flow = wave.flow
    if not (flow.live or flow.waiting or flow.notices or flow.ended_at_ms):
        flow.ended_at_ms = view.now_ms
        flow.stuck = False
        flow.stuck_since_ms = flow.looked_to = 0
    _put(view, wave)


def _put(view: View, wave: Wave) -> None:
    """Set a wave's timer to what lies ahead of it, and put it."""
    flow = wave.flow
    at_ms = _wake(view, wave)
    later = at_ms & keys.LATER
    waits = later and later < flow.timer_at_ms <= at_ms
    if at_ms != flow.timer_at_ms and not waits:
        if flow.timer_at_ms:
            view.delete(keys.flow_timer(flow.timer_at_ms, wave.jid, wave.occurrence))
        if later:
            view.put_later(keys.flow_timer(at_ms, wave.jid, wave.occurrence))
        elif at_ms:
            view.put_timer(keys.flow_timer(at_ms, wave.jid, wave.occurrence))
        flow.timer_at_ms = at_ms
    view.put(keys.flow(wave.jid, wave.occurrence), flow)


def _wake(view: View, wave: Wave) -> int:
    """When something is to be done about a wave; 0 for never."""
    flow = wave.flow
    if flow.going or flow.notices or flow.looked_to:
        return keys.LATER | view.now_ms
    if _is_over(flow):
        return _kept_until(view, wave)
    if flow.waiting and flow.ahead_ms < NEVER:
        # A wave of before may not know.
        return flow.ahead_ms or view.now_ms
    return 0


def _is_over(flow: FlowRecord) -> bool:
    """What its last run did not free, nothing will; it goes as a failure does."""
    return bool(flow.ended_at_ms or (flow.stuck_since_ms and not flow.live))


def _kept_until(view: View, wave: Wave) -> int:
    """When a wave that has ended, or waits for ever, is forgotten."""
    flow = wave.flow
    if view.get(keys.job(wave.jid), JobRecord) is None:
        return view.now_ms
    well_ms, failed_ms = namespaces.keep_times(view, wave.jid)
    if flow.ended_at_ms:
        return flow.ended_at_ms + (failed_ms if flow.failed else well_ms)
    return flow.stuck_since_ms + failed_ms


def wake(view: View, flow_jid: int, flow_occurrence: int) -> None:
    """There is more to notice, a step may be stuck, or the memory of a wave has had its time."""
    flow = view.need(keys.flow(flow_jid, flow_occurrence), FlowRecord)
    wave = Wave(flow_jid, flow_occurrence, flow)
    flow.timer_at_ms = 0
    flow.jids = ()
    if _is_over(flow) and not flow.notices and _kept_until(view, wave) <= view.now_ms:
        _let_go(view, wave)
    if flow.going:
        if _forget_some(view, wave):
            return
    elif flow.notices:
        if survey.look_on(view, wave):
            _notify_rest(view, wave)
    elif flow.waiting and _look_for_stuck(view, wave):
        if flow.stuck:
            flow.found_stuck_ms = view.now_ms
        if flow.ahead_ms == NEVER:
            flow.stuck_since_ms = flow.stuck_since_ms or view.now_ms
    if flow.going:
        _put(view, wave)
    else:
        _close(view, wave)


def _notify_rest(view: View, wave: Wave) -> None:
    """Notice what was left over, as long as there is room; less where much else can wait no more,
    such as a thousand waves at once."""
    left = max(limits.STEP, limits.CHANGE_ITEMS // view.due_at_once)
    prefix = keys.notices_of(wave.jid, wave.occurrence)
    # What is found in the store was left by decisions before this one.
    for key in view.scan_stored(prefix, keys.after(prefix)):
        notice = view.need(key, NoticeRecord)
        view.delete(key)
        if notice.round != wave.flow.round:
            continue
        wave.flow.notices -= 1
        left = _notify(view, wave, [(int.from_bytes(key[-8:], "big"), notice)], left)
        if not left:
            return


def _look_for_stuck(view: View, wave: Wave) -> bool:
    """Mark a wave some step of which waits for too long, and find the next instant to look. False
    when there is more to look at."""
    flow = wave.flow
    first, again = flow.looked_to, bool(flow.looked_to)
    if not again:
        flow.ahead_ms = NEVER
    prefix = keys.steps_of(wave.jid, wave.occurrence)
    begin = keys.step(wave.jid, wave.occurrence, first)
    for count, key in enumerate(view.scan(begin, keys.after(prefix))):
        if count and view.is_full:
            flow.looked_to = int.from_bytes(key[-8:], "big")
            return False
        _look_at(view, wave, key)
    flow.looked_to = 0
    if again:
        flow.ahead_ms = min(NEVER, max(flow.ahead_ms, view.now_ms + limits.STUCK_LOOK_MS))
    return True


def _look_at(view: View, wave: Wave, key: bytes) -> None:
    step, flow = view.need(key, StepRecord), wave.flow
    if step.state != Step.STATE_WAITING or step.round != flow.round:
        return
    if view.get(keys.JOB + key[-8:], JobRecord) is None:
        step.state = Step.STATE_CANNOT_RUN
        view.put(key, step)
        flow.waiting -= 1
        flow.cannot_run += 1
    elif step.stuck_at_ms <= view.now_ms:
        flow.stuck = True
    else:
        flow.ahead_ms = min(flow.ahead_ms, step.stuck_at_ms)


def _let_go(view: View, wave: Wave) -> None:
    """Nothing finds the wave any more; what is left of it goes in steps. The caller puts it."""
    _take_off_list(view, wave)
    wave.flow.going = True


def _take_off_list(view: View, wave: Wave) -> None:
    number = keys.namespace_of(wave.jid)
    view.delete(keys.flow_by_age(number, wave.flow.created_at_ms, wave.jid, wave.occurrence))


def _forget_some(view: View, wave: Wave) -> bool:
    """Whether the last of a wave is gone."""
    for prefix in (
        keys.notices_of(wave.jid, wave.occurrence),
        keys.steps_of(wave.jid, wave.occurrence),
    ):
        for key in view.scan(prefix, keys.after(prefix)):
            view.delete(key)
            if view.is_full:
                return False
    if not survey.forget(view, wave):
        return False
    view.delete(keys.flow(wave.jid, wave.occurrence))
    return True
