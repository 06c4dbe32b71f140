"""Writes the dashboards for Grafana beside this file.

    python deploy/grafana/dashboards.py            # overview.json, consensus.json, queues.json
    python deploy/grafana/dashboards.py --check    # fail if they differ from what would be written

The JSON is committed, since that is what is imported; this is what people read and change.
tests/deploy/test_dashboards.py holds that every metric is one that a node shows.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WIDTH, HEIGHT = 8, 7  # Of a panel; three stand side by side.
SOURCE = {"type": "prometheus", "uid": "${source}"}
OF = 'cluster=~"$cluster"'


@dataclass(frozen=True)
class Panel:
    """One picture: what is drawn, in which unit."""

    title: str
    unit: str
    # Legend and expression.
    lines: tuple[tuple[str, str], ...]
    about: str = ""


def one(title: str, unit: str, expr: str, legend: str = "{{instance}}", about: str = "") -> Panel:
    return Panel(title, unit, ((legend, expr),), about)


def spread(title: str, metric: str, by: str = "", about: str = "") -> Panel:
    """Half, 99 of 100 and all but one of 1,000 of a histogram."""
    group = f"le, {by}" if by else "le"
    legend = f"{{{{{by}}}}} " if by else ""
    rate = f"sum by ({group}) (rate({metric}_bucket{{{OF}}}[$__rate_interval]))"
    parts = ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))
    return Panel(
        title, "s", tuple((legend + name, f"histogram_quantile({q}, {rate})") for q, name in parts),
        about,
    )  # fmt: skip


def rate(metric: str, by: str = "") -> str:
    group = f" by ({by})" if by else ""
    return f"sum{group} (rate({metric}{{{OF}}}[$__rate_interval]))"


OVERVIEW = [
    one("Nodes that answer", "short", 'up{job="raftsched", cluster=~"$cluster"}'),
    one("Who leads", "short", f"raftsched_leads{{{OF}}}"),
    one("Voters that may be lost", "short",
        f"sum by (instance) (raftsched_member_connected{{{OF}}}) - on (instance) "
        f"floor(raftsched_voters{{{OF}}} / 2) - 1 and on (instance) raftsched_leads{{{OF}}} == 1"),
    Panel("Runs", "cps", (
        ("due", rate("raftsched_scheduled_times_total")),
        ("leased", rate("raftsched_leases_granted_total")),
        ("ended", rate("raftsched_runs_ended_total")),
        ("dead letters", rate("raftsched_dead_letters_total")),
    )),
    spread("Lateness", "raftsched_lateness_seconds", about="From due to leased, first attempts."),
    Panel("Waiting", "s", (("oldest", f"max(raftsched_oldest_ready_seconds{{{OF}}})"),),
          "How long the oldest run waits that could start."),
    Panel("Slots of workers", "short", (
        ("there", f"sum(raftsched_worker_slots{{{OF}}})"),
        ("taken", f"sum(raftsched_worker_slots_busy{{{OF}}})"),
        ("workers", f"sum(raftsched_worker_sessions{{{OF}}})"),
    )),
    one("Calls", "reqps", rate("raftsched_calls_total", "method"), "{{method}}"),
    one("Calls that were not answered with OK", "reqps",
        'sum by (code) (rate(raftsched_calls_total{code!="OK", cluster=~"$cluster"}'
        "[$__rate_interval]))", "{{code}}"),
    one("Turned away", "reqps", rate("raftsched_refused_total", "reason"), "{{reason}}"),
    one("Processor", "percentunit",
        'rate(process_cpu_seconds_total{job="raftsched", cluster=~"$cluster"}[$__rate_interval])'),
    one("Memory", "bytes", 'process_resident_memory_bytes{job="raftsched", cluster=~"$cluster"}'),
    Panel("Set aside and broken", "short", (
        ("broken jobs", f"max(raftsched_broken_jobs{{{OF}}})"),
        ("{{fate}}", f"sum by (fate) (increase(raftsched_set_aside_total{{{OF}}}[15m]))"),
    )),
    one("Certificates end in", "s", f"raftsched_certificate_expires_timestamp_seconds{{{OF}}} "
        "- time()", "{{instance}} {{door}}"),
    one("Versions", "short", f"count by (version, zone_edition) (raftsched_build_info{{{OF}}})",
        "{{version}}, zones {{zone_edition}}"),
]  # fmt: skip
CONSENSUS = [
    one("Term", "short", f"raftsched_term{{{OF}}}", about="Each step is an election."),
    one("Role", "short", f"raftsched_node_role{{{OF}}} == 1", "{{instance}} {{role}}"),
    one("A leader is known", "short", f"raftsched_leader_known{{{OF}}}"),
    one("Behind the leader", "short", f"raftsched_member_behind_entries{{{OF}}}", "{{member}}",
        "Entries of the log that a member does not have yet."),
    one("Age of the state", "s", f"raftsched_staleness_seconds{{{OF}}}"),
    one("Clocks", "s", f"raftsched_member_clock_skew_seconds{{{OF}}}",
        "{{instance}} to {{member}}"),
    spread("Decide", "raftsched_decide_seconds", about="Requests turned into one change."),
    spread("Commit", "raftsched_commit_seconds", about="From the decision until it is applied."),
    spread("Sync of the journal", "raftsched_sync_seconds", "instance"),
    spread("Apply", "raftsched_apply_seconds"),
    spread("Late for a timer", "raftsched_loop_lag_seconds", "instance"),
    Panel("Long steps of the loop", "short", (
        ("{{instance}}", f"increase(raftsched_long_steps_total{{{OF}}}[$__rate_interval])"),
    )),
    one("Journal written", "Bps", rate("raftsched_journal_written_bytes_total", "instance")),
    one("Journal kept", "bytes", f"raftsched_journal_bytes{{{OF}}}"),
    one("State on the disk", "bytes", f"raftsched_rocksdb_total_sst_files_size{{{OF}}}"),
    one("Free on the disk", "bytes", f"raftsched_disk_free_bytes{{{OF}}}"),
    one("Last read to the end", "s",
        f"time() - (raftsched_store_verified_timestamp_seconds{{{OF}}} > 0)",
        about="All files are read again each hour to find damage."),
    one("Open files", "short", 'process_open_fds{job="raftsched", cluster=~"$cluster"}'),
]  # fmt: skip
QUEUES = [
    one("Ready", "short", f"sum by (namespace, queue) (raftsched_queue_ready{{{OF}}})",
        "{{namespace}} {{queue}}", "Runs that wait for a worker."),
    one("Under way", "short", f"sum by (namespace) (raftsched_live_runs{{{OF}}})", "{{namespace}}"),
    one("Leased", "short", f"sum by (namespace) (raftsched_leases{{{OF}}})", "{{namespace}}"),
    one("Jobs", "short", f"sum by (namespace) (raftsched_jobs{{{OF}}})", "{{namespace}}"),
    one("Dead letters kept", "short", f"sum by (namespace) (raftsched_dead_letters_kept{{{OF}}})",
        "{{namespace}}"),
    Panel("Free slots", "short", ((
        "free", f"sum(raftsched_worker_slots{{{OF}}}) - sum(raftsched_worker_slots_busy{{{OF}}})"),
    )),
    one("Leases that ended", "cps", rate("raftsched_leases_ended_total"), "leases"),
    Panel("Waiting", "s", (("oldest", f"max(raftsched_oldest_ready_seconds{{{OF}}})"),)),
    spread("Lateness", "raftsched_lateness_seconds"),
]  # fmt: skip
DASHBOARDS = {"overview": OVERVIEW, "consensus": CONSENSUS, "queues": QUEUES}


def dashboard(name: str, panels: list[Panel]) -> dict[str, Any]:
    return {
        "uid": f"raftsched-{name}",
        "title": f"raftsched {name}",
        "tags": ["raftsched"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [{"type": "dashboards", "tags": ["raftsched"], "title": "raftsched",
                   "asDropdown": False, "includeVars": True, "keepTime": True}],
        "templating": {"list": [
            {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"},
            {"name": "cluster", "label": "Cluster", "type": "query", "datasource": SOURCE,
             "query": "label_values(raftsched_build_info, cluster)", "refresh": 2,
             "includeAll": True, "allValue": ".*", "multi": False,
             "current": {"text": "All", "value": "$__all"}},
        ]},
        "panels": [drawn(number, panel) for number, panel in enumerate(panels)],
    }  # fmt: skip


def drawn(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, 24 // WIDTH)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": column * WIDTH, "y": row * HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": None}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"},
                    "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expr,
             "legendFormat": legend, "range": True}
            for at, (legend, expr) in enumerate(panel.lines)
        ],
    }  # fmt: skip


def texts() -> dict[Path, str]:
    return {
        HERE / f"{name}.json": json.dumps(dashboard(name, panels), indent=1) + "\n"
        for name, panels in DASHBOARDS.items()
    }


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    stale = [
        path for path, text in texts().items() if not path.exists() or path.read_text() != text
    ]
    for path in stale:
        if check:
            sys.stderr.write(f"{path.name} is stale: python deploy/grafana/dashboards.py\n")
        else:
            path.write_text(texts()[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
