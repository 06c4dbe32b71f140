"""All errors, by the name programs import them from; `sdk/errors.py` has them.

from raftsched.client.errors import Forbidden, QuotaExceeded
"""

from __future__ import annotations

from .sdk import errors as _errors
from .sdk.errors import (
    AlreadyExists,
    CallerError,
    Closed,
    ClusterError,
    Conflict,
    FieldFault,
    Forbidden,
    InvalidArgument,
    LeaseLost,
    NotFound,
    OutcomeUnknown,
    QuotaExceeded,
    RaftschedError,
    RateLimited,
    ResultMismatch,
    RevisionGone,
    RunFailed,
    RunNotEnded,
    SessionLost,
    Unauthenticated,
    Unavailable,
)

__all__ = [
    "AlreadyExists",
    "CallerError",
    "Closed",
    "ClusterError",
    "Conflict",
    "FieldFault",
    "Forbidden",
    "InvalidArgument",
    "LeaseLost",
    "NotFound",
    "OutcomeUnknown",
    "QuotaExceeded",
    "RaftschedError",
    "RateLimited",
    "ResultMismatch",
    "RevisionGone",
    "RunFailed",
    "RunNotEnded",
    "SessionLost",
    "Unauthenticated",
    "Unavailable",
]

# The tree of them, for whoever asks for help on this name.
__doc__ = _errors.__doc__
