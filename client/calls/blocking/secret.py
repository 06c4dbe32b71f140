# Made from aio/secret.py by generate.py; write there.
"""Secrets for the targets of jobs: they go in, and come out for the leases of workers alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

from ....proto.v1 import secret_pb2
from ...sdk.options import EachCall, ReadOptions, Writing
from ...sdk.values import words
from .service import Service

Secret = secret_pb2.Secret


class Secrets(Service):
    """Secrets for the targets of jobs, which name them as `secret://NAME`."""

    def put(
        self,
        name: str,
        value: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        etag: str = "",
        **options: Unpack[Writing],
    ) -> Secret:
        """Create or replace one, labels included; without a value it keeps the one it has.

        client.secrets.put("api-key", os.environ["API_KEY"])
        """
        wanted = Secret(
            namespace=self._namespace(options), name=name, labels=words(labels or {}, "labels"),
            etag=etag,
        )  # fmt: skip
        request = secret_pb2.PutSecretRequest(secret=wanted, value=value)
        return self._send(request, Secret, options)

    def get(self, name: str, **options: Unpack[ReadOptions]) -> Secret:
        """What is known of one; its value is never shown.

        print(client.secrets.get("api-key").update_time)
        """
        return self._send(secret_pb2.GetSecretRequest(secret=name), Secret, options)

    def list(self, *, limit: int | None = None, **options: Unpack[ReadOptions]) -> Iterator[Secret]:
        """List them by name.

        for secret in client.secrets.list():
            print(secret.name)
        """
        return self._items(secret_pb2.ListSecretsRequest(), "secrets", limit, options)

    def delete(
        self, name: str, *, etag: str = "", force: bool = False, **options: Unpack[Writing]
    ) -> None:
        """Delete one; with `force` also while jobs name it, whose attempts then fail.

        client.secrets.delete("api-key")
        """
        request = secret_pb2.DeleteSecretRequest(secret=name, etag=etag, force=force)
        self._send(request, secret_pb2.DeleteSecretResponse, options)

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
