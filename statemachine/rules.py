"""Which rule decides which request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..proto.v1 import (
    calendar_pb2,
    dead_letter_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
    worker_pb2,
)
from . import (
    by_hand,
    calendars,
    ends,
    firing,
    grants,
    jobs,
    leases,
    namespaces,
    occasions,
    queues,
    reports,
    verify,
)
from .request import Again, Grant, Lapse, Note, Repair, Report, Resume, Ring

Rule = Callable[[Any, Any, str], object]

RULES: dict[type, Rule] = {
    Ring: firing.ring,
    Grant: grants.grant,
    Again: leases.again,
    Report: reports.report,
    Note: reports.note,
    Lapse: leases.lapse,
    Resume: leases.resume,
    Repair: verify.repair,
    worker_pb2.ExtendRequest: reports.extend,
    worker_pb2.CompleteRequest: ends.complete,
    worker_pb2.FailRequest: ends.fail,
    worker_pb2.ReleaseRequest: ends.release,
    job_pb2.CreateJobRequest: jobs.create,
    job_pb2.UpdateJobRequest: jobs.update,
    job_pb2.DeleteJobRequest: jobs.delete,
    job_pb2.PauseJobRequest: jobs.pause,
    job_pb2.ResumeJobRequest: jobs.resume,
    job_pb2.ImportJobsRequest: jobs.import_jobs,
    job_pb2.TriggerJobRequest: occasions.trigger,
    job_pb2.BackfillJobRequest: occasions.backfill,
    job_pb2.DropBacklogRequest: occasions.drop_backlog,
    job_pb2.EditOccurrenceRequest: occasions.edit,
    job_pb2.RevertOccurrenceRequest: occasions.revert,
    run_pb2.CancelRunRequest: by_hand.cancel,
    run_pb2.TerminateRunRequest: by_hand.terminate,
    run_pb2.RetryRunRequest: by_hand.retry,
    dead_letter_pb2.EditDeadLetterRequest: by_hand.edit_dead,
    dead_letter_pb2.RequeueDeadLetterRequest: by_hand.requeue,
    dead_letter_pb2.RequeueDeadLettersRequest: by_hand.requeue_many,
    dead_letter_pb2.PurgeDeadLettersRequest: by_hand.purge_many,
    queue_pb2.UpdateQueueRequest: queues.update,
    queue_pb2.PauseQueueRequest: queues.pause,
    queue_pb2.ResumeQueueRequest: queues.resume,
    namespace_pb2.CreateNamespaceRequest: namespaces.create,
    namespace_pb2.UpdateNamespaceRequest: namespaces.update,
    namespace_pb2.DeleteNamespaceRequest: namespaces.delete,
    calendar_pb2.CreateCalendarRequest: calendars.create,
    calendar_pb2.UpdateCalendarRequest: calendars.update,
    calendar_pb2.DeleteCalendarRequest: calendars.delete,
}
