"""How one disk becomes a cluster of its own: a backup is put back, or the majority is gone.

The state that the new cluster begins with is laid down as a snapshot of an index that no journal
has, with a configuration in which this disk alone votes. Nothing counts before the snapshot has
its final name; after that a start completes what is left, as it does with one that was fetched.

The disk gets a new number, so whatever the other nodes still hold of its former one speaks of
nobody. The others are members with a disk that nobody has: whoever comes with an empty one takes
that place, learns, and gets its vote. The new history has an origin of its own, and the links
refuse whoever has another one.
"""

from __future__ import annotations

from collections.abc import Callable

from .faults import require
from .journal import Journal
from .manifest import Manifest
from .membership import Configuration, Member
from .snapshot import Snapshots

NOBODY = 1  # A disk draws 48 random bits; see `Join.begin`.


def force_new_cluster(
    journal: Journal, snapshots: Snapshots, me: str, addresses: dict[str, str], *,
    origin: str, incarnation: int, term: int, checkpoint: Callable[[str], int],
) -> Manifest:  # fmt: skip
    """Lay down the state that `checkpoint` writes, at the index it says."""
    require(NOBODY < incarnation < 1 << 56, f"{incarnation} is no number for a disk")
    members = {
        name: Member(incarnation, address, True) if name == me else Member(NOBODY, address, False)
        for name, address in addresses.items()
    }
    config = Configuration(members, origin)
    config.check_size()
    index, files = snapshots.write(checkpoint)()
    last = max(journal.last_index, snapshots.last_index)
    require(index > last, f"the new state stands at {index}, and the disk holds entries to {last}")
    manifest = Manifest(index, term, index, [(index, config.encode().decode())], files)
    manifest.check()
    # First the number: in between, this disk is a member of nothing.
    journal.set_term(term, None)
    journal.set_identity({"incarnation": incarnation, "table": {me: incarnation}})
    batch = journal.take()
    require(batch is not None, "the journal has nothing to write")
    if batch is not None:
        batch.run()
        journal.end_round(batch)
    snapshots.publish(manifest)()
    return manifest
