"""Places of which there are not enough for everybody, shared by tenants.

A tenant may hold the part of the free places that is free of all: of 100, with 80 free, 64. So one
alone takes 38 of 100, and the more are taken, the smaller is what a further one gets: as many as
the square root of all (141 of 20,000) together leave that many free still, and whoever has none yet
finds some. Nobody has to give a place back for that, which workers with leases and calls that wait
could not.

A call or worker of no tenant is the cluster's own and may take all there is: where there are no
access tokens everybody is, and where there are, they are for all namespaces.
"""

from __future__ import annotations


class TenantRoom:
    """See the head of this file."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.taken = 0
        # Whoever holds nothing is not in here.
        self._by_tenant: dict[str, int] = {}

    def held(self, tenant: str) -> int:
        return self._by_tenant.get(tenant, 0)

    def has_room(self, tenant: str, amount: int = 1) -> bool:
        """Whether a tenant may have so many more. Its first is let in wherever it fits."""
        left = self.maximum - self.taken - amount
        held = self.held(tenant)
        if left < 0 or not tenant or not held:
            return left >= 0
        return (held + amount) * self.maximum <= left * left

    def share(self) -> int:
        """How many a tenant may hold of what is free now."""
        left = max(0, self.maximum - self.taken)
        return left * left // self.maximum

    def take(self, tenant: str, amount: int = 1) -> None:
        """It has so many more, whether there is room or not."""
        self.taken += amount
        self._by_tenant[tenant] = self.held(tenant) + amount

    def give(self, tenant: str, amount: int = 1) -> None:
        self.taken -= amount
        left = self._by_tenant.pop(tenant, 0) - amount
        if left:
            self._by_tenant[tenant] = left

    def clear(self) -> None:
        self.taken = 0
        self._by_tenant.clear()
