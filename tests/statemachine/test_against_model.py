"""Random histories, decided by the rules and by a slow model of them, come out the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from raftsched.proto.v1 import error_pb2, job_pb2
from raftsched.statemachine.core.rejection import Rejection

from ..sampled import some
from .histories import CommonHistory, order, play, specs
from .model import Spec

NAMES = ("a", "b", "c")


class Histories(CommonHistory):
    """Jobs that have nothing to do with each other come and go."""

    @rule(name=st.sampled_from(NAMES), spec=specs, once=st.sampled_from([-5_000, 20_000]))
    def create(self, name: str, spec: Spec, once: int) -> None:
        at_ms = self.model.now_ms + once
        happens_once = not spec.every_ms and spec.overlap_limit == 3
        spec = replace(spec, key_limit=2 if spec.key else 0, once_ms=at_ms if happens_once else 0)
        [reply] = self.machine.do_all(order(name, spec))
        if name in self.model.jobs:
            assert isinstance(reply, Rejection)
            assert reply.reason == error_pb2.ERROR_REASON_JOB_EXISTS
        else:
            assert isinstance(reply, job_pb2.Job), reply
            self.model.create(name, spec)

    @precondition(lambda self: len(self.model.jobs) > 1)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.jobs)))
        self.machine.do(job_pb2.DeleteJobRequest(job=name))
        self.model.delete(name)
        self.old_leases = [item for item in self.old_leases if item[0].job.name != name]
        self.fire()
        # What ended with it goes from the history a moment later, and then its name is free.
        self.wait_and_ring(1)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("many", some([60, 200], 1))
def test_the_rules_do_what_their_model_does(many: int) -> None:
    play(Histories, many)
