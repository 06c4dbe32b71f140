"""What callers hold of a node."""

from __future__ import annotations

import pytest

from raftsched.cluster.api.caller_limits import CallerShare, CallerShares
from raftsched.cluster.node.limits import CallerLimits
from raftsched.statemachine.core.rejection import Refused


def test_bodies_of_nothing_are_given_back_by_several_at_once() -> None:
    share = CallerShare("body_mb", 100, 50)
    share.take("a", 0)
    share.take("a", 0)
    share.give("a", 0)
    share.give("a", 0)

    assert (share.total, share.held) == (0, {})


def refused(share: CallerShare, caller: str, amount: int) -> tuple[str, str, str]:
    with pytest.raises(Refused) as caught:
        share.take(caller, amount)
    values = caught.value.rejection.values
    assert f"{values['limit']}" in caught.value.rejection.message
    return values["limit"], values["maximum"], values["of"]


def test_a_refusal_names_the_setting_that_is_to_be_raised() -> None:
    """In the words of the configuration, with the number that stands there."""
    shares = CallerShares(
        CallerLimits(body_mb=3, body_mb_by_caller=2, watchers=3, watchers_by_caller=2)
    )
    for share, one in ((shares.bytes, 1 << 20), (shares.watchers, 1)):
        share.take("a", 2 * one)
        assert refused(share, "a", one) == (f"{share.name}_by_caller", "2", "a")
        share.take("b", one)
        assert refused(share, "b", one) == (share.name, "3", "all")
    shares.costly.take("a")
    assert refused(shares.costly, "a", 1)[0] == "costly_reads"


def test_a_share_of_more_than_all_is_no_share() -> None:
    share = CallerShares(CallerLimits(watchers=2, watchers_by_caller=5)).watchers
    share.take("a", 2)
    assert refused(share, "a", 1) == ("watchers", "2", "all")
