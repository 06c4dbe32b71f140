"""Which read answers which request.

A read looks at a view on a snapshot and changes nothing. The workers that are there are handed in
by the leader; elsewhere there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from ...proto.v1 import (
    access_pb2,
    alert_pb2,
    calendar_pb2,
    dead_letter_pb2,
    flow_pb2,
    identity_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
    secret_pb2,
)
from ..core.rejection import Refused, Rejection
from ..model.view import View
from ..model.workers import Workers
from ..occurrences import next_time
from . import (
    audit,
    audit_many,
    explain,
    forecast,
    outcomes,
)
from . import (
    flows as read_flows,
)
from . import (
    jobs as read_jobs,
)
from . import (
    runs as read_runs,
)
from . import (
    settings as read_settings,
)

Read = Callable[[View, Any, Workers], Message]

READS: dict[type, Read] = {
    job_pb2.GetJobRequest: read_jobs.get,
    job_pb2.GetJobStatusRequest: read_jobs.get_status,
    job_pb2.ListJobsRequest: read_jobs.list_jobs,
    job_pb2.ListJobHistoryRequest: read_jobs.list_history,
    job_pb2.ListJobLedgerRequest: read_jobs.list_ledger,
    job_pb2.PreviewScheduleRequest: forecast.preview_schedule,
    job_pb2.ForecastFiringsRequest: forecast.forecast,
    job_pb2.GetOutcomesRequest: outcomes.get_outcomes,
    job_pb2.AuditJobRequest: audit.audit,
    job_pb2.AuditJobsRequest: audit_many.audit_jobs,
    job_pb2.ExplainJobRequest: explain.explain_job,
    run_pb2.GetRunRequest: read_runs.get,
    run_pb2.ListRunsRequest: read_runs.list_runs,
    run_pb2.ExplainRunRequest: explain.explain_run,
    dead_letter_pb2.GetDeadLetterRequest: read_runs.get_dead,
    dead_letter_pb2.ListDeadLettersRequest: read_runs.list_dead,
    flow_pb2.GetFlowRequest: read_flows.get,
    flow_pb2.ListFlowsRequest: read_flows.list_flows,
    flow_pb2.GetGraphRequest: read_flows.get_graph,
    queue_pb2.GetQueueRequest: read_settings.get_queue,
    queue_pb2.ListQueuesRequest: read_settings.list_queues,
    namespace_pb2.GetNamespaceRequest: read_settings.get_namespace,
    namespace_pb2.ListNamespacesRequest: read_settings.list_namespaces,
    calendar_pb2.GetCalendarRequest: read_settings.get_calendar,
    calendar_pb2.ListCalendarsRequest: read_settings.list_calendars,
    access_pb2.ListAuditRecordsRequest: read_settings.list_audit_records,
    access_pb2.ListAccessTokensRequest: read_settings.list_access_tokens,
    identity_pb2.GetIdentityProviderRequest: read_settings.get_identity_provider,
    identity_pb2.ListIdentityProvidersRequest: read_settings.list_identity_providers,
    secret_pb2.GetSecretRequest: read_settings.get_secret,
    secret_pb2.ListSecretsRequest: read_settings.list_secrets,
    alert_pb2.ListAlertsRequest: read_settings.list_alerts,
}


# Reads that look at a bounded handful of records: the loop does them at once. The others would hold
# it up, and are done on a thread, on the state as it was at one instant.
OF_FEW_RECORDS: tuple[type[Message], ...] = (
    job_pb2.GetJobRequest, run_pb2.GetRunRequest, namespace_pb2.GetNamespaceRequest,
    calendar_pb2.GetCalendarRequest, dead_letter_pb2.GetDeadLetterRequest,
)  # fmt: skip
# Reads that ask for the workers, which are a list of all of them: nobody makes it for the others.
OF_WORKERS = (
    job_pb2.ExplainJobRequest, job_pb2.ForecastFiringsRequest, run_pb2.ExplainRunRequest,
    queue_pb2.GetQueueRequest, queue_pb2.ListQueuesRequest,
)  # fmt: skip


def read(view: View, request: Message, workers: Workers = ()) -> Message | Rejection:
    """Answer a read request, or say why not."""
    try:
        return READS[type(request)](view, request, workers)
    except Refused as refused:
        return refused.rejection
    except next_time.UnreadableSchedule as unreadable:
        return unreadable.rejection(getattr(request, "job", ""))
