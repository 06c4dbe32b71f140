# Made from aio/secrets_by_hand.py by calls/generate.py; write there.
"""Why by hand: `rekey` answers after each step, and the sums of all steps are wanted."""

from __future__ import annotations

from typing import Any, Unpack

from ....proto.v1 import secret_pb2
from ...sdk.options import EachCall, Writing
from .service import Service


class SecretsByHand(Service):
    """Beside what the contracts say by themselves."""

    def rekey(self, **options: Unpack[Writing]) -> secret_pb2.RekeySecretsResponse:
        """Encrypt all secrets of the cluster under the leader's first key; the sums of all steps.

        assert not client.secrets.rekey().unopened
        """
        given: Any = dict(options)
        request_id, steps = given.pop("request_id", ""), 0
        request, done = secret_pb2.RekeySecretsRequest(), secret_pb2.RekeySecretsResponse()
        while True:
            if request_id:
                given["request_id"] = f"{request_id}.{steps}"
            step = self._step(request, given)
            done.rekeyed, done.unopened = done.rekeyed + step.rekeyed, done.unopened + step.unopened
            done.key_id = step.key_id
            missing = {*done.missing_key_ids, *step.missing_key_ids}
            del done.missing_key_ids[:]
            done.missing_key_ids.extend(sorted(missing))
            if not step.next_page_token:
                return done
            request.page_token, steps = step.next_page_token, steps + 1

    def _step(
        self, request: secret_pb2.RekeySecretsRequest, options: EachCall
    ) -> secret_pb2.RekeySecretsResponse:
        step = secret_pb2.RekeySecretsRequest()
        step.CopyFrom(request)
        return self._send(step, secret_pb2.RekeySecretsResponse, options)
