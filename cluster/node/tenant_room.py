"""Places of which there are not enough for everybody, shared by tenants.

A tenant may hold as many as it leaves free. So one alone takes half of them, a second one half of
what is left, and whoever has none yet finds some. Nobody has to give a place back for that, which
workers with leases and calls that wait could not.

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
        return left >= 0 and (not tenant or not held or held + amount <= left)

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
