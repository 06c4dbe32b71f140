"""What stands between JSON and the cluster: a codec turns the bytes of payloads and results.

    class Sealed:
        def encode(self, data: bytes, content_type: str) -> tuple[bytes, str]:
            return fernet.encrypt(data), "application/x-sealed"

        def decode(self, data: bytes, content_type: str) -> tuple[bytes, str]:
            if content_type != "application/x-sealed":
                return data, content_type
            return fernet.decrypt(data), "application/json"

    app = App(codec=Sealed())

The cluster, its page and its command line see what the codec has made. What reads a payload in the
cluster, such as a concurrency key `payload.customer`, finds nothing in it then.
"""

from __future__ import annotations

from typing import Protocol

from ..sdk.values import Payload


class Codec(Protocol):
    """Turns bytes on their way to the cluster, and turns them back.

    `decode` also meets what others have sent, as plain JSON: it gives that back as it is.
    """

    def encode(self, data: bytes, content_type: str) -> tuple[bytes, str]: ...

    def decode(self, data: bytes, content_type: str) -> tuple[bytes, str]: ...


def encoded(codec: Codec | None, made: Payload | None) -> Payload | None:
    """A payload as the cluster is to see it."""
    if codec is None or made is None:
        return made
    data, content_type = codec.encode(made.data, made.content_type)
    return Payload(data=data, content_type=content_type)


def decoded(codec: Codec | None, held: Payload) -> Payload:
    """A payload as it was before it was encoded; an empty one is nothing."""
    if codec is None or not held.data:
        return held
    data, content_type = codec.decode(held.data, held.content_type)
    return Payload(data=data, content_type=content_type, hidden=held.hidden)
