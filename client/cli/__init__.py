"""The `raftsched` command.

It must answer `--help` at once, so nothing here may import gRPC or RocksDB before a sub-command
needs it; `tests/client/test_cli.py` holds that. Others may use:

* lazy: commands that are loaded when they are called, and the way every command ends.
"""

from __future__ import annotations

import click

from .lazy import CommandEntry, Root

HELP = """\b
Schedule jobs on a Raft cluster: nothing lost, nothing doubled, no database.
Each option can be a variable: RAFTSCHED_OUTPUT, RAFTSCHED_JOB_LIST_STATE.
-h is the help of each command, -V the version."""
EXAMPLES = ("raftsched job create report --cron '0 9 * * *' --handler build-report",)

# What is typed: where it is, and its line on the root's help page. What is not installed is not
# shown. The last four belong to packages that this one must not import, hence words, not names.
COMMANDS = {
    "dev": CommandEntry(".dev:dev", "Start a cluster of three nodes to try things on."),
    "job": CommandEntry(".job:job", "Jobs: create, change, look at, apply from files."),
    "run": CommandEntry(".run:run", "Runs: list, wait for, cancel, explain."),
    "queue": CommandEntry(".queue:queue", "Queues: look at, pause, limit."),
    "dead": CommandEntry(".dead:dead", "Dead letters: look at, edit, requeue, purge."),
    "flow": CommandEntry(".flow:flow", "Flow runs: passes through jobs that depend on each other."),
    "calendar": CommandEntry(".calendar:calendar", "Calendars: days on which jobs do not happen."),
    "schedule": CommandEntry(".schedule:schedule", "What a schedule means and when it happens."),
    "namespace": CommandEntry(".namespace:namespace", "Namespaces: the tenants and their quotas."),
    "token": CommandEntry(".token:token", "Access tokens: who may do what."),
    "whoami": CommandEntry(".whoami:whoami", "Who you are to the cluster, and what you may do."),
    "identity": CommandEntry(
        ".identity:identity", "Identity providers: who else vouches for callers."
    ),
    "secret": CommandEntry(".secret:secret", "Secrets for targets of jobs, shown to nobody."),
    "app": CommandEntry(".app:app", "Apps: declare the jobs of a Python program, run it."),
    "worker": CommandEntry(".worker:worker", "Workers: list, drain, run one."),
    "watch": CommandEntry(".watch:watch", "Follow what happens, as it happens."),
    "top": CommandEntry(".top:top", "The cluster at a glance, drawn again each second."),
    "alert": CommandEntry(".alert:alert", "Alerts: conditions to be notified of."),
    "audit": CommandEntry(
        ".audit:audit", "Prove that no scheduled time of a job is unaccounted for."
    ),
    "audit-log": CommandEntry(".audit_log:audit_log", "Who changed what."),
    "cluster": CommandEntry(
        ".cluster:cluster", "The cluster: status, members, leadership, snapshots."
    ),
    "gateway": CommandEntry(".gateway:gateway", "Serve HTTP and JSON for a cluster."),
    "node": CommandEntry("raftsched.cluster.main:node", "Run one node of a cluster."),
    "bench": CommandEntry("raftsched.chaos.commands.bench:bench", "Measure a cluster."),
    "chaos": CommandEntry("raftsched.chaos.commands.chaos:chaos", "Prove a cluster under faults."),
    "tls": CommandEntry(".tls:tls", "Certificates of your own: make and renew them."),
    "doctor": CommandEntry(
        ".doctor:doctor", "Find out what is wrong with this machine or the cluster."
    ),
    "support-bundle": CommandEntry(
        ".support:support_bundle", "What is needed to find a fault, without secrets."
    ),
    "config": CommandEntry(".config:config", "Contexts: which cluster the commands talk to."),
    "completion": CommandEntry(
        ".completion:completion", "Print the completion script for a shell."
    ),
}

main = Root(
    "raftsched",
    table=COMMANDS,
    examples=EXAMPLES,
    help=HELP,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "RAFTSCHED",
        "max_content_width": 100,
    },
)
# The version is looked for when it is asked for: reading it costs each command 20 ms.
main = click.version_option(
    None, "--version", "-V", package_name="raftsched", prog_name="raftsched"
)(main)
