"""Which jobs a wave may come to: those that its first one leads to.

Most waves never ask. Where few jobs follow, they are found in one go and remembered in memory
(`graph.led_to`). Where more do, the wave makes a survey: it goes down from its first job in bounded
steps, each of which marks jobs in the state, and a step that needs to know is decided once that is
complete. A wave writes more for each of these jobs when it comes to it.

A survey shows the graph as it was when it began. Should a step, or a job that it waits for and that
was not found, have been made or changed since, the wave makes another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..core import limits
from ..model import keys
from ..model.entities import Job
from ..model.record import JobRecord, SurveyRecord
from ..model.view import View
from . import graph
from .wave import Wave


def inside(view: View, wave: Wave, job: Job, awaited: Iterable[int]) -> set[int] | None:
    """Those of the jobs that a step waits for which its wave may come to. None: that is not known
    yet, and the wave is looking; its timer goes on with that."""
    survey = _of(view, wave)
    if survey is None:
        below = graph.led_to(view, wave.jid)
        if below is not None:
            return below.intersection(awaited)
    elif survey.looked < survey.found:
        return None
    else:
        wanted = set(awaited)
        found = _found(view, wave, survey, wanted)
        if not _is_old(view, survey, job, wanted - found):
            return found
    _begin(view, wave)
    return None


def seen(view: View, wave: Wave, jids: Iterable[int]) -> set[int]:
    """The same as far as it is known; for readers, and where `inside` has answered."""
    survey = _of(view, wave)
    if survey is not None and survey.looked == survey.found:
        return _found(view, wave, survey, jids)
    below = graph.led_to(view, wave.jid) if survey is None else None
    return set(jids) if below is None else below.intersection(jids)


def is_inside(view: View, wave: Wave, jid: int) -> bool:
    """Whether the wave surely comes to a job."""
    survey = _of(view, wave)
    if survey is not None:
        return survey.looked == survey.found and bool(_found(view, wave, survey, (jid,)))
    below = graph.led_to(view, wave.jid)
    return below is not None and jid in below


def look_on(view: View, wave: Wave) -> bool:
    """Look at some more jobs. Whether none is left."""
    survey = _of(view, wave)
    if survey is None or survey.looked == survey.found:
        return True
    for count, _ in enumerate(_pieces(view, wave, survey), start=1):
        if count == limits.SURVEY_LINKS or (count % limits.SURVEY_LOOK == 0 and view.is_full):
            break
    view.put(keys.survey(wave.jid, wave.occurrence), survey)
    return survey.looked == survey.found


def _pieces(view: View, wave: Wave, survey: SurveyRecord) -> Iterator[None]:
    """Look at one link after the other; the survey's record says how far that came."""
    place, number = (wave.jid, wave.occurrence), survey.number.to_bytes(8, "big")
    while survey.looked < survey.found:
        at = view.get_raw(keys.surveyed(*place, survey.looked))
        assert at is not None, f"{survey} has no job at its next place"
        for below in graph.downstream_from(view, int.from_bytes(at, "big"), survey.next_jid):
            survey.next_jid = below + 1
            mark = keys.in_survey(*place, below)
            if view.get_raw(mark) != number:
                view.put_raw(mark, number)
                view.put_raw(keys.surveyed(*place, survey.found), below.to_bytes(8, "big"))
                survey.found += 1
            yield
        survey.looked += 1
        survey.next_jid = 0
        yield


def forget(view: View, wave: Wave) -> bool:
    """Drop some of what a wave has found; whether all of it is gone."""
    place = wave.jid, wave.occurrence
    if view.get(keys.survey(*place), SurveyRecord) is None:
        return True
    for prefix in (keys.surveyed_of(*place), keys.in_survey_of(*place)):
        for key in view.scan(prefix, keys.after(prefix)):
            view.delete(key)
            if view.is_full:
                return False
    view.delete(keys.survey(*place))
    return True


def _of(view: View, wave: Wave) -> SurveyRecord | None:
    survey = view.get(keys.survey(wave.jid, wave.occurrence), SurveyRecord)
    flow = wave.flow
    if survey is None or (survey.created_at_ms, survey.round) != (flow.created_at_ms, flow.round):
        return None
    return survey


def _found(view: View, wave: Wave, survey: SurveyRecord, jids: Iterable[int]) -> set[int]:
    number = survey.number.to_bytes(8, "big")
    place = wave.jid, wave.occurrence
    return {jid for jid in jids if view.get_raw(keys.in_survey(*place, jid)) == number}


def _is_old(view: View, survey: SurveyRecord, job: Job, outside: Iterable[int]) -> bool:
    """Whether a step, or one that it is not to wait for, was made or changed since."""
    others = (view.get(keys.job(jid), JobRecord) for jid in outside)
    return any(
        record is not None and survey.began_at_ms < record.updated_at_ms <= view.now_ms
        for record in (job.definition, *others)
    )


def _begin(view: View, wave: Wave) -> None:
    place, flow = (wave.jid, wave.occurrence), wave.flow
    before = view.get(keys.survey(*place), SurveyRecord)
    number = 1 if before is None else before.number + 1
    view.put(
        keys.survey(*place),
        SurveyRecord(
            created_at_ms=flow.created_at_ms, round=flow.round, number=number,
            began_at_ms=view.now_ms, found=1,
        ),
    )  # fmt: skip
    root = wave.jid.to_bytes(8, "big")
    view.put_raw(keys.surveyed(*place, 0), root)
    view.put_raw(keys.in_survey(*place, wave.jid), number.to_bytes(8, "big"))
