"""The limit on open files is raised as far as it may be, for this process alone."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from raftsched.cluster.ops.descriptors import WANTED

SHOW = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),"
    " int(sys.argv[2])));"
    "from raftsched.cluster.ops.descriptors import raise_limit;"
    "print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
)


@pytest.mark.parametrize(("soft", "hard"), [(256, 300), (64, 1_000), (300, 300)])
def test_the_soft_limit_becomes_the_hard_one(soft: int, hard: int) -> None:
    words = [sys.executable, "-c", SHOW, str(soft), str(hard)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert said.split() == [str(hard), str(hard)]


def test_it_is_not_raised_without_a_bound() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    allowed = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    words = [sys.executable, "-c", SHOW, str(min(256, allowed)), str(hard)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert said.split() == [str(allowed), str(allowed)]
