"""The contracts' modules, loaded when first used: `messages.job_pb2.GetJobRequest(...)`.

protobuf takes longer to load than a help page may take to appear.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf import json_format as json_format
    from google.protobuf.message import Message as Message

    from ...proto.v1 import access_pb2 as access_pb2
    from ...proto.v1 import alert_pb2 as alert_pb2
    from ...proto.v1 import calendar_pb2 as calendar_pb2
    from ...proto.v1 import cluster_pb2 as cluster_pb2
    from ...proto.v1 import common_pb2 as common_pb2
    from ...proto.v1 import dead_letter_pb2 as dead_letter_pb2
    from ...proto.v1 import event_pb2 as event_pb2
    from ...proto.v1 import flow_pb2 as flow_pb2
    from ...proto.v1 import identity_pb2 as identity_pb2
    from ...proto.v1 import job_pb2 as job_pb2
    from ...proto.v1 import namespace_pb2 as namespace_pb2
    from ...proto.v1 import options_pb2 as options_pb2
    from ...proto.v1 import queue_pb2 as queue_pb2
    from ...proto.v1 import run_pb2 as run_pb2
    from ...proto.v1 import schedule_pb2 as schedule_pb2
    from ...proto.v1 import secret_pb2 as secret_pb2
    from ...proto.v1 import worker_pb2 as worker_pb2


def __getattr__(name: str) -> object:
    if name.endswith("_pb2"):
        return import_module(f"...proto.v1.{name}", __package__)
    if name == "json_format":
        return import_module("google.protobuf.json_format")
    raise AttributeError(name)
