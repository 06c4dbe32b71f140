"""The log of a run: records that name it, and the end of it, which is kept with the run."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import MutableMapping
from typing import Any

from ...proto import tracing
from ...proto.v1.worker_pb2 import Lease
from .outcomes import LOG_BYTES_MAX
from .redaction import NO_SECRETS

LOGGER = logging.getLogger("raftsched.run")
_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(message)s")


class RunLog(logging.LoggerAdapter[logging.Logger]):
    """Writes to the logger "raftsched.run", and keeps the end of what was written.

    INFO and above are kept with the run even where the program's own log shows less.
    """

    def __init__(self, lease: Lease) -> None:
        super().__init__(LOGGER, None)
        self.fields = {
            "namespace": lease.namespace,
            "job": lease.job,
            "run": lease.run,
            "attempt": lease.attempt,
            "token": lease.token,
        }
        self._kept = bytearray()
        self.redaction = NO_SECRETS
        # What was kept before was cut off.
        self._cut = False
        self._changed = False
        self._lock = threading.Lock()

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        spans = tracing.active()
        places = {} if spans is None else spans.log_fields()
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **self.fields, **places}
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:  # noqa: ANN401
        if level >= logging.INFO:
            self._keep(level, msg, args, kwargs.get("exc_info"))
        # The record names the handler's line, not this one.
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        super().log(level, msg, *args, **kwargs)

    def _keep(self, level: int, msg: object, args: tuple[object, ...], exc_info: object) -> None:
        record = logging.LogRecord("", level, "", 0, msg, args, None)
        if exc_info:
            is_error = isinstance(exc_info, BaseException)
            error = exc_info if is_error else sys.exc_info()[1]
            if isinstance(error, BaseException):
                record.exc_info = (type(error), error, error.__traceback__)
        self.write((_FORMAT.format(record) + "\n").encode("utf-8", "replace"))

    def write(self, data: bytes) -> None:
        """Keep these bytes alone; for output that is no log record."""
        with self._lock:
            self._changed = True
            self._kept += data
            # A secret that is under way is kept whole.
            most = max(LOG_BYTES_MAX, self.redaction.longest)
            if len(self._kept) > 4 * most:
                self._kept = bytearray(self.redaction.data(bytes(self._kept), front=self._cut))
                self._cut = self._cut or len(self._kept) > most
                del self._kept[:-most]

    @property
    def tail(self) -> bytes:
        with self._lock:
            if not self.redaction.longest:
                return bytes(self._kept[-LOG_BYTES_MAX:])
            kept = self.redaction.data(bytes(self._kept), front=self._cut, end=True)
            return kept[-LOG_BYTES_MAX:]

    def news(self) -> bytes:
        """The tail, if it is another than last time; empty otherwise."""
        if not self._changed:
            return b""
        self._changed = False
        return self.tail
