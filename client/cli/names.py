"""Names as arguments, which the shell can complete by asking the cluster.

Completion has 300 ms in all: what is not there by then is left out, and nothing is ever shown about
it, since the shell would print it into the line that is being typed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from google.protobuf.message import Message

BUDGET_S = 0.3
ITEMS_MAX = 100


class Name(click.ParamType[str]):
    """A name of something that the cluster knows."""

    def __init__(self, name: str, ask: Callable[[str, str], tuple[Message, str]]) -> None:
        self.name = name
        self._ask = ask

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            return [CompletionItem(name) for name in self._names(ctx, incomplete)]
        except Exception:  # Silence is the contract here; see above.
            if os.environ.get("RAFTSCHED_DEBUG"):
                raise
            return []

    def _names(self, ctx: click.Context, incomplete: str) -> list[str]:
        from .render.output import name_of
        from .session import Invocation

        with ctx.scope(), Invocation.of(ctx.params) as session:
            session.connect_timeout_s = BUDGET_S
            request, field = self._ask(session.namespace, incomplete)
            answer: Any = session.client.call(request, timeout=BUDGET_S)
        names = [name_of(one) for one in getattr(answer, field)]
        return [name for name in names if name.startswith(incomplete)][:ITEMS_MAX]


def _jobs(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import job_pb2

    text = f"name={begin}*" if begin else ""
    return job_pb2.ListJobsRequest(namespace=namespace, filter=text, page_size=ITEMS_MAX), "jobs"


def _runs(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import run_pb2

    return run_pb2.ListRunsRequest(namespace=namespace, page_size=1000), "runs"


def _dead(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import dead_letter_pb2

    return dead_letter_pb2.ListDeadLettersRequest(namespace=namespace, page_size=1000), "runs"


def _queues(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import queue_pb2

    return queue_pb2.ListQueuesRequest(namespace=namespace, page_size=1000), "queues"


def _workers(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import worker_pb2

    return worker_pb2.ListWorkersRequest(page_size=1000), "workers"


def _flows(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import flow_pb2

    return flow_pb2.ListFlowsRequest(namespace=namespace, page_size=1000), "flows"


def _calendars(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import calendar_pb2

    return calendar_pb2.ListCalendarsRequest(namespace=namespace, page_size=1000), "calendars"


def _namespaces(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import namespace_pb2

    return namespace_pb2.ListNamespacesRequest(page_size=1000), "namespaces"


def _nodes(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import cluster_pb2

    return cluster_pb2.GetClusterStatusRequest(), "nodes"


def _alerts(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import alert_pb2

    return alert_pb2.ListAlertsRequest(namespace=namespace, page_size=1000), "alerts"


def _tokens(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import access_pb2

    return access_pb2.ListAccessTokensRequest(page_size=1000), "access_tokens"


def _providers(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import identity_pb2

    return identity_pb2.ListIdentityProvidersRequest(page_size=1000), "identity_providers"


def _secrets(namespace: str, begin: str) -> tuple[Message, str]:
    from .messages import secret_pb2

    return secret_pb2.ListSecretsRequest(namespace=namespace, page_size=1000), "secrets"


JOB = Name("job", _jobs)
RUN = Name("run", _runs)
DEAD = Name("run", _dead)
QUEUE = Name("queue", _queues)
WORKER = Name("worker", _workers)
FLOW = Name("flow", _flows)
CALENDAR = Name("calendar", _calendars)
NAMESPACE = Name("namespace", _namespaces)
NODE = Name("node", _nodes)
ALERT = Name("alert", _alerts)
TOKEN = Name("token", _tokens)
PROVIDER = Name("provider", _providers)
SECRET = Name("secret", _secrets)
