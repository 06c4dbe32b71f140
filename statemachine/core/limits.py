"""Every limit of the rules, with its unit and its reason. A refusal names the limit it met."""

from __future__ import annotations

NAME_CHARS = 128  # A DNS-like name with room for a prefix.
PAYLOAD_BYTES = 65_536  # Bigger things belong in an object store, their address in the payload.
CONTENT_TYPE_CHARS = 128
DESCRIPTION_CHARS = 1_024
OWNER_CHARS = 256
REASON_CHARS = 256
BROKEN_CHARS = 1_024  # Of why a job was set aside.
LABELS = 32
LABEL_CHARS = 256
WORKER_LABELS = 8
SCHEDULES = 16
UPSTREAM_JOBS = 64
EDITS = 100  # Occurrences of one job changed by hand and still ahead.
FATAL_KINDS = 32
KIND_CHARS = 128
MESSAGE_CHARS = 4_096
WARNING_CHARS = 1_024  # Of a run that succeeded.
WARNING_EXIT_CODES = 16  # Of a command, that mean success with a warning.
TRACE_CHARS = 16_384
TRACE_CONTEXT_BYTES = 512
LOG_TAIL_BYTES = 16_384
CHECKPOINT_BYTES = 16_384
PROGRESS_CHARS = 256
ATTEMPTS = 1_000
PAUSE_ON_FAILURE = 1_000  # Runs that failed in a row.
ON_FAILURE_DEPTH = 16  # Jobs that trigger one another by their failures, one behind the other.
ON_FAILURE_CHARS = 1_024  # Of the message of an error, handed to the job that a failure triggers.
ATTEMPTS_KEPT = 20  # Of a run's attempts the record keeps the first and the last 19.
OVERLAP = 10_000
WAITING_RUNS = 10_000  # Of one job, held back until there is room, that a trigger may add to.
URL_CHARS = 2_048
HEADERS = 32
ARGV = 256
ENVIRONMENT = 64
UNIQUE_KEY_CHARS = 256
LIMIT_KEY_CHARS = 128
CONCURRENCY = 1_000_000
NAMESPACES = 10_000
CALENDARS = 1_000
ALERTS = 100
ACCESS_TOKENS = 10_000
CALLS_PER_SECOND = 100_000
OVERLAP_MS = 30 * 24 * 3_600_000
IDENTITY_PROVIDERS = 16
BINDING_RULES = 50
CLAIM_SELECTORS = 8
CLAIM_PATH = 5
CLAIM_VALUES = 50
CLAIM_CHARS = 256
AUDIENCES = 8
KEY_SET_BYTES = 64 << 10
KEYS_OF_ISSUER = 32
LEEWAY_MS = 300_000
ALERT_WORKERS = 10_000
IMPORT_JOBS = 1_000
IMPORT_PATHS = 32
IMPORT_WARNINGS = 8  # Of one job.
IMPORT_BYTES = 3 * 1024 * 1024  # A gRPC message is at most 4 MiB.
BACKFILL_RUNS = 10_000
AUDIT_TIMES = 10_000  # Scheduled times, or runs, that one audit looks at.
AUDIT_NOTES = 10_000  # Of the audit log, the newest: what an audit can prove calls with.
MISFIRE_RUNS = 10_000
CALENDAR_DAYS = 4_000  # Of missed times that calendars are asked about in one go.
GRAPH_JOBS = 10_000  # Jobs that a graph shows, ...
GRAPH_LINKS = 30_000  # ... and links by which they wait.
CIRCLE_JOBS = 2_000  # Jobs that a search for a circle looks at in either direction, ...
CIRCLE_LINKS = 10_000  # ... and links between them: some 20 ms.
LED_JOBS = 5_000  # That a wave from the middle may come to, looked for once while no job ...
LED_LINKS = 60_000  # ... gets another upstream, and links between them: some 40 ms at most.
LED_ROOTS = 16  # First jobs of such waves that are remembered.
LED_FROM_JOBS = 500  # Looked at for each step where there are more, up from what it waits for, ...
LED_FROM_LINKS = 5_000  # ... and links between them: some 5 ms.
COMMON_LINKS = 5_000  # Above a job, that are looked at for one that comes before others too.
PATH_JOBS = 20  # Of a cycle, as a refusal names it.
DEPENDENTS = 30_000  # Jobs that wait for one: each end notifies all of them.
FLOW_DEPTH = 10_000  # Jobs that wait one for the other, from the first to the last.
FLOW_STEPS = 10_000  # Of a wave, as an answer shows it: it must fit into a frame of 3 MiB.
LANES = 128  # Of one namespace that one kind of workers is offered at a time.
BUSY_PLACES = 1_000  # Queues with ready runs that a grant looks through for a worker's.
WAVES_LOOKED_AT = 10_000  # Of the newest, for a job in them that waits for others than before.
STUCK_LOOK_MS = 1_000  # Between two looks for stuck steps in a wave of many.
PAGE = 1_000
PAGE_DEFAULT = 50
PAGE_BYTES = 1024 * 1024
UPSTREAM_BYTES = 1024 * 1024  # Of results that come along: a lease must fit into a frame of 3 MiB.

# One change. Its size decides how long the loop is busy without a break (about 20 ms).
CHANGE_ITEMS = 1_000
# What is written may go beyond by the record that reaches it, and by what a request brought along.
ENTRY_BYTES = 6 * 1024 * 1024  # The log takes no larger change.
CHANGE_BYTES = 1024 * 1024
# One step of work that may be long: a purge, a release of a backlog, an admission.
STEP = 100
LOOKED_AT = 20_000  # Records that one filtered call looks at.
LETTERS_LOOKED_AT = 200_000  # Dead letters, in one call: a few microseconds each, in steps.
BULK_FAILURES = 100  # Of one step, that its answer names.
BULK_SAMPLE = 20
SORTED_JOBS = 20_000  # Of a namespace, that are put in order of their next time for a page.
COUNTED = 10_000  # What fits a filter, as a list counts it.
SORTED_RUNS = 200_000  # Runs under way of a namespace that are put in order for a page.

IDEMPOTENCY = 1_000_000  # Answers to request ids.
IDEMPOTENCY_MS = 10 * 60 * 1000
AUDIT_ENTRIES = 1_000_000

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
YEAR_MS = 366 * DAY_MS
# An occurrence has 48 bits for its scheduled time: the year 10889.
INSTANT_MAX_MS = (1 << 48) - 1
LONG_MS = 10 * YEAR_MS  # The longest duration anywhere.

BOOST_MS = 60 * SECOND_MS  # What a step of priority is worth in waiting time.
GRACE_MS = 60 * SECOND_MS
JITTER_MAX_MS = DAY_MS
RETRY_ATTEMPTS = 4
RETRY_FIRST_MS = 5 * SECOND_MS
RETRY_FACTOR_PERCENT = 200
RETRY_CAP_MS = 10 * MINUTE_MS
RETRY_JITTER_PERCENT = 10
MISFIRE_DEFAULT = 100
CANCEL_GRACE_MS = 30 * SECOND_MS
STUCK_AFTER_MS = DAY_MS
KEEP_SUCCEEDED_MS = 7 * DAY_MS
KEEP_FAILED_MS = 30 * DAY_MS
KEEP_LEDGER_MS = 90 * DAY_MS
KEEP_AUDIT_MS = 365 * DAY_MS
BACKLOG_RATE = 1_000  # Missed scheduled times a second that become runs, after an outage.
BACKLOG_RATE_MAX = 100_000
# What was not used of that rate in so long may be caught up with: changes come in steps, too.
BACKLOG_BURST_MS = 100
NAMESPACE_WEIGHT = 100
