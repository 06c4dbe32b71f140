"""Why a node does not start or did not go on, as a code a supervisor can act on."""

from __future__ import annotations

from enum import IntEnum


class NodeExit(IntEnum):
    """The exit codes of `raftsched node`. DESIGN.md says which of them a restart may mend."""

    CLEAN = 0
    DIED = 1
    CONFIG = 2
    CUT_SHORT = 3
    FOLDER_FOREIGN = 10
    FOLDER_LOCKED = 11
    OTHER_CLUSTER = 12
    OTHER_NODE = 13
    NEWER_FORMAT = 14
    FOLDER_UNWRITABLE = 15
    DISK_FULL = 16
    ADDRESS_TAKEN = 17
    DAMAGED = 18
    NO_BACKUP = 19
    CLUSTER_LIVES = 20
    REMOVED = 21
    FILE_LIMIT = 22
    REPLACED = 23


class NodeCannotStart(Exception):
    """One line for a person, and the code."""

    def __init__(self, code: NodeExit, story: str) -> None:
        super().__init__(story)
        self.code = code
