"""Which rule decides which request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..proto.v1 import (
    access_pb2,
    alert_pb2,
    calendar_pb2,
    dead_letter_pb2,
    identity_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
    worker_pb2,
)
from .calls import (
    alerts,
    bulk,
    dead_letters,
    imports,
    jobs,
    staging,
)
from .calls import (
    occurrences as occurrence_calls,
)
from .calls import (
    runs as run_calls,
)
from .firing import dispatch, namespace_deletion, set_time
from .model.request import (
    Again,
    Bulk,
    Called,
    CreateToken,
    DropEntry,
    DropStage,
    FireTimer,
    FireTimers,
    Grant,
    ImportSome,
    Lapse,
    Letters,
    MakeAlerts,
    Note,
    NoteUses,
    Observe,
    Repair,
    Report,
    Resume,
    RotateToken,
    SealStage,
    SetAside,
    SetTime,
    StagePiece,
)
from .runs import attempts, grants, leases, reports, set_aside
from .selfcheck import verify
from .tenants import access, calendars, namespaces, own_alerts, providers, queues

Rule = Callable[[Any, Any, str], object]

RULES: dict[type, Rule] = {
    FireTimers: dispatch.fire_timers,
    FireTimer: dispatch.fire_timer,
    SetAside: set_aside.set_aside,
    DropEntry: set_aside.drop_entry,
    MakeAlerts: own_alerts.make,
    Grant: grants.grant,
    Again: leases.again,
    Report: reports.report,
    Note: reports.note,
    Lapse: leases.lapse,
    Resume: leases.resume,
    Repair: verify.repair,
    Observe: alerts.observe,
    Called: alerts.called,
    CreateToken: access.create,
    RotateToken: access.rotate,
    NoteUses: access.note_uses,
    SetTime: set_time.set_time,
    StagePiece: staging.stage,
    SealStage: staging.seal,
    DropStage: staging.drop,
    worker_pb2.ExtendRequest: reports.extend,
    worker_pb2.CompleteRequest: attempts.complete,
    worker_pb2.FailRequest: attempts.fail,
    worker_pb2.ReleaseRequest: attempts.release,
    job_pb2.CreateJobRequest: jobs.create,
    job_pb2.UpdateJobRequest: jobs.update,
    job_pb2.DeleteJobRequest: jobs.delete,
    job_pb2.PauseJobRequest: jobs.pause,
    job_pb2.ResumeJobRequest: jobs.resume,
    job_pb2.RepairJobRequest: set_aside.repair,
    job_pb2.ImportJobsRequest: imports.import_jobs,
    ImportSome: imports.import_some,
    job_pb2.TriggerJobRequest: occurrence_calls.trigger,
    job_pb2.BackfillJobRequest: occurrence_calls.backfill,
    job_pb2.DropBacklogRequest: occurrence_calls.drop_backlog,
    job_pb2.EditOccurrenceRequest: occurrence_calls.edit,
    job_pb2.RevertOccurrenceRequest: occurrence_calls.revert,
    run_pb2.CancelRunRequest: run_calls.cancel,
    run_pb2.TerminateRunRequest: run_calls.terminate,
    run_pb2.RetryRunRequest: run_calls.retry,
    dead_letter_pb2.EditDeadLetterRequest: run_calls.edit_dead,
    dead_letter_pb2.RequeueDeadLetterRequest: run_calls.requeue,
    dead_letter_pb2.RequeueDeadLettersRequest: dead_letters.all_at_once,
    dead_letter_pb2.PurgeDeadLettersRequest: dead_letters.all_at_once,
    Letters: dead_letters.some,
    job_pb2.ChangeJobsRequest: bulk.all_at_once,
    run_pb2.ChangeRunsRequest: bulk.all_at_once,
    Bulk: bulk.some,
    queue_pb2.UpdateQueueRequest: queues.update,
    queue_pb2.PauseQueueRequest: queues.pause,
    queue_pb2.ResumeQueueRequest: queues.resume,
    namespace_pb2.CreateNamespaceRequest: namespaces.create,
    namespace_pb2.UpdateNamespaceRequest: namespaces.update,
    namespace_pb2.DeleteNamespaceRequest: namespace_deletion.delete,
    calendar_pb2.CreateCalendarRequest: calendars.create,
    calendar_pb2.UpdateCalendarRequest: calendars.update,
    calendar_pb2.DeleteCalendarRequest: calendars.delete,
    alert_pb2.PutAlertRequest: alerts.put,
    alert_pb2.DeleteAlertRequest: alerts.delete,
    access_pb2.RevokeAccessTokenRequest: access.revoke,
    identity_pb2.PutIdentityProviderRequest: providers.put,
    identity_pb2.DeleteIdentityProviderRequest: providers.delete,
}
