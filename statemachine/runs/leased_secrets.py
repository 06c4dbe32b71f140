"""The secrets that a lease needs, encrypted: for the worker that holds it, as long as it does."""

from __future__ import annotations

from ...proto import secret_text
from ...proto.v1 import worker_pb2
from ..core.rejection import Refused
from ..model import former_specs, keys
from ..model.entities import Run
from ..model.phases import LEASED
from ..model.record import SecretRecord, SessionRecord
from ..model.request import ResolveSecrets, SealedSecret
from ..model.specs import Template
from ..model.view import View
from ..tenants import audit_log, namespaces, target_secrets
from . import recorded


def resolve(view: View, order: ResolveSecrets, actor: str) -> list[SealedSecret]:
    """All secrets that the action of a lease names."""
    request = order.request
    run = _leased(view, request)
    number, definition = keys.namespace_of(run.jid), run.job.definition
    namespace = namespaces.need(view, definition.namespace)
    found = []
    for name in secret_text.names_in(_template(view, run).spec.action):
        record = view.get(keys.target_secret(number, name), SecretRecord)
        if record is None:
            raise target_secrets.missing(definition.namespace, name)
        place = target_secrets.place_of(namespace, name, record.value_version)
        found.append(SealedSecret(place, record.key_id, record.sealed))
    if order.noted:
        change = f"for the run {request.run}, on the worker {keys.worker_id(request.worker)}"
        for one in found:
            subject = f"secret/{one.place.name}"
            audit_log.add(
                view, actor, "ResolveSecrets", definition.namespace, subject, request, change
            )
    return found


def _template(view: View, run: Run) -> Template:
    """What a run does, which its job may say otherwise by now."""
    definition = run.job.definition
    if run.record.action_version == definition.action_version:
        return definition.template
    return former_specs.former(view, run)[0]


def _leased(view: View, request: worker_pb2.ResolveSecretsRequest) -> Run:
    place = keys.run_key(request.run)
    if place is None:
        raise Refused(recorded.no_run(request.run))
    run = view.find_run(place)
    session = view.get(keys.session(request.worker), SessionRecord)
    holds = (
        run is not None and session is not None and run.record.phase == LEASED
        and run.record.token == request.token and run.record.session == session.number
    )  # fmt: skip
    if run is None or not holds:
        last = recorded.last_of(view, place, run)
        word = recorded.lost(request.run, request.token, last)
        raise Refused(recorded.no_run(request.run) if last is None else word)
    return run
