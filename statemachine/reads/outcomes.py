"""How the last runs of many jobs ended: in few bytes each, for lists of jobs."""

from __future__ import annotations

from itertools import islice

from ...proto.v1 import job_pb2
from ..core.instants import set_ms
from ..core.rejection import Fault, Reason, Refused
from ..flows import graph
from ..model import keys, validate
from ..model.record import CarriedRecord, RunRecord, parse
from ..model.view import View
from ..model.workers import Workers
from ..tenants import namespaces

JOBS_MAX, RUNS_MAX = 100, 20
# Records that one call reads: a run may carry a payload, a result and a log.
BYTES_MAX = 4 << 20


def get_outcomes(
    view: View, request: job_pb2.GetOutcomesRequest, workers: Workers
) -> job_pb2.GetOutcomesResponse:
    namespace = namespaces.need(view, request.namespace)
    faults = validate.count("jobs", len(request.jobs), JOBS_MAX)
    faults += validate.between("count", request.count, 0, RUNS_MAX)
    if not request.jobs:
        faults.append(Fault("jobs", Reason.ERROR_REASON_FIELD_REQUIRED, "is empty; name some"))
    if faults:
        raise Refused.of(faults)
    answer, left = job_pb2.GetOutcomesResponse(), BYTES_MAX
    for name in dict.fromkeys(request.jobs):
        jid = graph.jid_named(view, namespace.number, name)
        if jid is None:
            continue
        shown, prefix = answer.jobs.add(job=name), keys.of_job(keys.ENDED, jid)
        found = view.stored.scan(prefix, keys.of_job(keys.ENDED, jid + 1))
        for key, value in islice(found, request.count or RUNS_MAX):
            left -= len(value)
            if left < 0:
                answer.partial = True
                return answer
            _, occurrence = keys.ended_of(key)
            run = parse(key, value, RunRecord)
            made = shown.runs.add(run=keys.run_id(name, jid, occurrence), state=run.state)
            set_ms(made.scheduled_time, occurrence >> 16)
            set_ms(made.end_time, run.ended_at_ms)
            if run.exempt & RunRecord.CARRIES:
                place = keys.carried(jid, occurrence)
                carries = view.stored.get(place) or b""
                left -= len(carries)
                made.warned = bool(carries and parse(place, carries, CarriedRecord).warning)
            if run.started_at_ms:
                set_ms(made.duration, max(0, run.ended_at_ms - run.started_at_ms))
    return answer
