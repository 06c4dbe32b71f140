"""Many jobs in one call, each taken or refused alone, in as many changes as it takes.

They are taken upstream first, whatever their order in the call, so that what was exported can be
imported as it is. An import goes on where it ended, also when the call is repeated with its request
id: what each change answered is remembered. On trial each part sees what those before it would have
written.

With a request id the answer of each part is remembered, the first one's under the id itself. With
`validate_only` the import is on trial (`ImportSome.trial`), and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from ...proto.v1 import job_pb2
from ..core import limits, masks
from ..core.rejection import Fault, Reason, Refused
from ..flows import graph
from ..model import keys, validate
from ..model.entities import Job, job_with
from ..model.layer import Layer
from ..model.record import JobRecord
from ..model.request import Imported, ImportSome
from ..model.view import View
from ..tenants import audit_log, idempotency, namespaces
from . import job_warnings, jobs

Import = job_pb2.ImportJobsRequest
Result = job_pb2.ImportResult
Answer = job_pb2.ImportJobsResponse
# The tag of `upstream` in the bytes of a spec. Other fields may have these bytes as well.
UPSTREAM = b"\x8a\x01"
APART = 1 << 30  # Between numbers of jobs that are there and of those on trial.


def import_jobs(view: View, request: Import, actor: str) -> Answer:
    """All of an import as one change, however long that takes."""
    _check(request)
    order = order_of(request)
    return in_order(_take(view, request, order, actor, all_of_it=True), order)


def import_some(view: View, body: ImportSome, actor: str) -> Imported:
    """As much of an import as there is room for, at least one job."""
    request, first = body.request, body.first
    if not first:
        _check(request)
    request_id = id_of(request.request_id, first) if request.request_id else ""
    if request_id:
        before = idempotency.find(view, request_id, request, body.digest)
        if before is not None:
            assert isinstance(before, Answer), before
            return Imported(before, first + len(before.results))
    trial = None
    if request.validate_only:
        view, trial = on_trial(view, body.trial)
    answer = _take(view, request, body.order[first:], actor, all_of_it=False)
    if trial is not None:
        view.seal()
        trial.absorb(view)
    if not first and len(answer.results) == len(request.jobs):
        answer = in_order(answer, body.order)
    if request_id:
        idempotency.add(view, request_id, request, answer, body.digest)
    return Imported(answer, first + len(answer.results), trial)


def on_trial(view: View, trial: Layer | None) -> tuple[View, Layer]:
    """A view over what the parts before would have written, and over the state as it is by now."""
    layer = trial or Layer(view.stored)
    layer.below = view.stored
    over = View(layer, view.now_ms, is_spent=view.is_spent)
    over.lacking = view.lacking
    if trial is None:
        # Others may make jobs meanwhile, which are not to get the same numbers.
        over.meta.job_serial += APART
    return over, layer


def rest_of(body: ImportSome, imported: Imported) -> ImportSome:
    """What is left of an import."""
    return replace(body, first=imported.next, trial=imported.trial)


def some_of(request: Import) -> ImportSome:
    """The beginning of an import."""
    data = request.SerializeToString(deterministic=True)
    digest = idempotency.fingerprint(request, data) if request.request_id else b""
    return ImportSome(request, digest, order_of(request, data))


def joined(whole: ImportSome, parts: Sequence[Answer]) -> Answer:
    """What all parts of an import answered, in the order of its jobs."""
    if len(parts) == 1:
        return parts[0]
    answer = Answer()
    for part in parts:
        answer.MergeFrom(part)
    return in_order(answer, whole.order)


def order_of(request: Import, data: bytes = b"") -> Sequence[int]:
    """The places of jobs, upstream before downstream, otherwise as they are given. Whoever has the
    bytes of the request gives them: most say at once that there is nothing to put in order."""
    wanted = request.jobs
    if UPSTREAM not in (data or request.SerializeToString()):
        return range(len(wanted))
    places = {(job.namespace, job.name): place for place, job in enumerate(wanted)}
    waits = [0] * len(wanted)
    behind: list[list[int]] = [[] for _ in wanted]
    for place, job in enumerate(wanted):
        for dependency in job.spec.upstream.jobs:
            source = places.get((job.namespace, dependency.job))
            if source is not None and source != place:
                waits[place] += 1
                behind[source].append(place)
    order = [place for place, count in enumerate(waits) if not count]
    for place in order:  # It grows meanwhile.
        for other in behind[place]:
            waits[other] -= 1
            if not waits[other]:
                order.append(other)
    # Those that wait for each other are refused in their turn.
    return order + [place for place, count in enumerate(waits) if count]


def _check(request: Import) -> None:
    faults = validate.count("jobs", len(request.jobs), limits.IMPORT_JOBS)
    faults += validate.enum("mode", request, "mode")
    size = request.ByteSize()
    if size > limits.IMPORT_BYTES:
        message = (
            f"the request has {size} bytes; the most is {limits.IMPORT_BYTES}. Send it in parts"
        )
        faults.append(Fault("jobs", Reason.ERROR_REASON_LIMIT_EXCEEDED, message))
    if faults:
        raise Refused.of(faults)


def id_of(request_id: str, first: int) -> str:
    """Under which id the answer of a part is remembered: the first one's is that of the call."""
    if not first:
        return request_id
    return blake2b(f"{first} {request_id}".encode(), digest_size=16).hexdigest()


def in_order(answer: Answer, order: Sequence[int]) -> Answer:
    """Results as they were taken, in the order of the call."""
    if isinstance(order, range):
        return answer
    by_place = dict(zip(order, answer.results, strict=True))
    return Answer(results=[by_place[place] for place in range(len(by_place))])


def _take(
    view: View, request: Import, places: Sequence[int], actor: str, *, all_of_it: bool
) -> Answer:
    upsert = request.mode == Import.MODE_UPSERT
    answer = Answer()
    wanted, results = request.jobs, answer.results
    done = 0
    for place in places:
        if not all_of_it and results and view.is_full:
            break
        done += _take_one(view, wanted[place], upsert, actor, results.add())
    if done:
        looked = len(answer.results)
        rest = "" if looked == len(request.jobs) else f", of {len(request.jobs)} in all"
        detail = f"{done} of {looked} jobs created or updated{rest}"
        namespace = request.jobs[0].namespace or namespaces.DEFAULT
        audit_log.add(view, actor, "ImportJobs", namespace, "job", request, detail)
    return answer


def _take_one(view: View, wanted: job_pb2.Job, upsert: bool, actor: str, result: Result) -> bool:
    """Whether a job was created or updated."""
    result.job = wanted.name
    try:
        if upsert:
            number = namespaces.need(view, wanted.namespace).number
            jid = graph.jid_named(view, number, wanted.name)
            if jid is not None:
                definition = view.need(keys.job(jid), JobRecord)
                namespaces.check_etag(wanted.etag, definition.version)
                before = definition.full_spec()
                if before == wanted.spec:
                    result.verdict = Result.VERDICT_UNCHANGED
                    return False
                changed = masks.differing(before, wanted.spec, "spec.")[: limits.IMPORT_PATHS]
                job = view.job(jid)
                notes = jobs.replace_spec(view, job, wanted)
                result.verdict = Result.VERDICT_UPDATED
                result.changed_paths.extend(changed)
                found = [*notes, *job_warnings.warnings(view, job)]
                result.warnings.extend(found[: limits.IMPORT_WARNINGS])
                return True
        made = job_with(*jobs.add(view, wanted, actor))
        result.verdict = Result.VERDICT_CREATED
        result.warnings.extend(_of_new(view, made))
        return True
    except Refused as refused:
        no = refused.rejection
        result.verdict, result.reason = Result.VERDICT_REFUSED, no.word
        result.field, result.message = no.values.get("field", ""), no.message
        return False


def _of_new(view: View, job: Job) -> list[str]:
    """The warnings of a new job, found once for those that have all but the name in common."""
    definition = job.definition
    place = keys.namespace_of(job.jid), definition.template, definition.schedules
    batch = view.job_batches.get(place)
    if batch is not None and batch.warnings is not None:
        return batch.warnings
    found = job_warnings.warnings(view, job)[: limits.IMPORT_WARNINGS]
    if batch is not None and not definition.template.spec.concurrency.key:
        batch.warnings = found
    return found
