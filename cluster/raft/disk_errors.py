"""What an error of the operating system means for a node."""

from __future__ import annotations

import errno

from .disk import FULL, file_limit
from .faults import DiskFailed, FileLimit


def lacking(error: OSError) -> str:
    """What must be had before the same works, for people."""
    if error.errno in FULL:
        return f"the disk is full ({error})"
    return (
        f"no file can be opened ({error}); raise the limit on open files (ulimit -n, LimitNOFILE), "
        "or see who holds that many connections"
    )


def disk_failed(error: BaseException) -> BaseException:
    """Say what an error of the operating system means for this node."""
    if isinstance(error, OSError):
        if error.errno == errno.EFBIG:
            return FileLimit(file_limit())
        return DiskFailed(
            f"the disk refused a write or a sync ({error}); what it holds is not known any more, "
            "so this node stops. Replace the disk, or start again with an empty folder."
        )
    return error
