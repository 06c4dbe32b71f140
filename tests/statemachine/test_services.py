"""Every call of the contracts is answered by a rule, a read, or a named part of the server."""

from __future__ import annotations

from raftsched.proto.contract import methods
from raftsched.statemachine.model import request
from raftsched.statemachine.reads.reads import READS
from raftsched.statemachine.rules import RULES

# Calls that the server brings to a rule under another name, since they say less or more.
AS_RULES = {
    "CreateAccessToken": request.CreateToken,
    "RotateAccessToken": request.RotateToken,
    "Lease": request.Grant,
    "Heartbeat": request.Note,
    "ReportResults": request.Report,
    "Work": request.Resume,
    "PutSecret": request.StoreSecret,
    "RekeySecrets": request.ResealSecrets,
    "ResolveSecrets": request.ResolveSecrets,
}
# Calls about what is no part of the state: nodes, sessions, streams, what comes.
SERVER = {
    "WhoAmI": "who calls",
    "GetFigures": "what leaders counted",
    "GetClusterStatus": "members", "AddNode": "members", "RemoveNode": "members",
    "MoveNode": "members", "DrainNode": "node", "TransferLeadership": "consensus",
    "TakeSnapshot": "snapshots", "VerifyState": "the self-check",
    "SetStateTime": "a rule with clocks",
    "Backup": "snapshots", "StageBackup": "the log", "RestoreBackup": "the log",
    "WatchEvents": "events", "ListEvents": "events",
    "WaitRun": "GetRun and events", "ListWorkers": "sessions", "DrainWorker": "sessions",
}  # fmt: skip


def test_every_call_is_answered_by_exactly_one() -> None:
    for method in methods():
        ways = [
            way
            for way, answers in {
                "rule": method.request in RULES,
                "read": method.request in READS,
                "as another rule": method.verb in AS_RULES,
                "server": method.verb in SERVER,
            }.items()
            if answers
        ]
        assert len(ways) == 1, f"{method.name} is answered by {ways or 'nobody'}"


def test_every_rule_and_read_is_for_a_call_or_for_the_leader() -> None:
    asked = {method.request for method in methods()}
    own = {kind for kind in RULES if kind.__module__ == request.__name__}

    assert set(RULES) - own <= asked
    assert set(READS) <= asked
    assert set(AS_RULES.values()) <= own
    assert (set(AS_RULES) | set(SERVER)) <= {method.verb for method in methods()}
