"""Tests of the owner of a second, wherever the report begins."""

from fractions import Fraction

import pytest

from tests.unit.accounting.samples import an_instance
from toolkit.accounting.attempt_instances import Usage, Wait
from toolkit.accounting.charges import Component
from toolkit.accounting.timeline import WHOLE, Timeline

END = 400


@pytest.mark.parametrize("begin", [0, 60, 150, 200, 250])
@pytest.mark.parametrize(("waited_from", "owner"), [(50, 1), (100, 2), (150, 2)])
def test_of_a_wait_and_a_job_that_end_together_the_later_has_the_time_behind(
    begin, waited_from, owner
):
    """Run job 1 from 100 to 200; job 2 waits until 200.

    Of one begin the wait is the later.
    """
    timeline = Timeline(
        an_instance(launched=0, ended=END),
        [Usage(1, 100, 200, Fraction(1), None)],
        [Wait(2, waited_from, 200)],
        END,
    )
    timeline.shares(begin, END)
    assert timeline.shares(300, END) == [((Component.IDLE_TAIL, owner), WHOLE)]
