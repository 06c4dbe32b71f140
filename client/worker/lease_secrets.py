"""Asks the cluster for the secrets that a lease names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...proto.v1 import worker_pb2
from ...proto.v1.worker_pb2 import Lease
from ..sdk.async_core import AsyncClientCore
from ..sdk.errors import ClusterError, RaftschedError
from .outcomes import AttemptFailed, Released

TIMEOUT_S = 20.0
# Nothing was begun, so the run goes back and comes again.
BACK_S = 5.0
KINDS = {"SECRET_NOT_FOUND": "secret.missing", "SECRET_KEY_MISSING": "secret.key"}


class LeaseSecrets:
    """The secrets of leases that one worker holds."""

    def __init__(self, client: AsyncClientCore, worker: Callable[[], str]) -> None:
        self._client, self._worker = client, worker

    async def fetch(self, lease: Lease) -> Mapping[str, str]:
        """Values by name. AttemptFailed where there are none, Released where nobody answers."""
        request = worker_pb2.ResolveSecretsRequest(
            worker=self._worker(), run=lease.run, token=lease.token
        )
        try:
            answer = await self._client.call(request, timeout=TIMEOUT_S)
        except ClusterError:
            raise Released(BACK_S, b"") from None
        except RaftschedError as error:
            kind = KINDS.get(error.reason, "secret.refused")
            raise AttemptFailed(f"its secrets: {error.message}", kind=kind) from None
        assert isinstance(answer, worker_pb2.ResolveSecretsResponse), answer
        return dict(answer.secrets)
