"""The alerts that a cluster has of its own from the start."""

from __future__ import annotations

from ...proto.v1 import alert_pb2
from ..core.instants import duration
from ..model import keys
from ..model.record import AlertRecord
from ..model.request import MakeAlerts
from ..model.view import View

EDITION = 2  # Of the list below: each is made once, so what somebody deletes stays away.
LONG_STEP_MS = 1_000
LEADER_CHANGES = 5
# A run that no worker can take is ready for as long.
LATENESS_MS = 300_000
OWN_ALERTS = {
    "dead-letters": alert_pb2.AlertCondition(dead_letters_above=0),
    "jobs-broken": alert_pb2.AlertCondition(broken_jobs_above=0),
    "leader-changes": alert_pb2.AlertCondition(leader_changes_above=LEADER_CHANGES),
    "long-steps": alert_pb2.AlertCondition(long_step_above=duration(LONG_STEP_MS)),
    "members-differ": alert_pb2.AlertCondition(members_differ=True),
    "runs-wait": alert_pb2.AlertCondition(lateness_above=duration(LATENESS_MS)),
    "work-set-aside": alert_pb2.AlertCondition(set_aside_above=0),
}
# Those that came later than with the first edition.
SINCE = {"dead-letters": 2, "runs-wait": 2}


def wanted(edition: int) -> bool:
    """Whether a cluster with so many of them has some to come."""
    return edition < EDITION


def make(view: View, request: MakeAlerts, actor: str) -> None:
    """Make those that are not there; what somebody has made under such a name stays."""
    if not wanted(view.meta.alerts_made):
        return
    before, view.meta.alerts_made = view.meta.alerts_made, EDITION
    for name, condition in OWN_ALERTS.items():
        key = keys.alert(keys.CLUSTER, name)
        if SINCE.get(name, 1) > before and view.get(key, AlertRecord) is None:
            settings = alert_pb2.Alert(name=name, condition=condition)
            view.put(key, AlertRecord(settings=settings, version=1))
