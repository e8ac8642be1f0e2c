"""What ranks agree on at the end of loops; how sessions use it is in test_run."""

import pytest

from toolkit.training.distributed.process_group import Solo
from toolkit.training.distributed.step_sync import StepSync


class Left(Exception):  # noqa: N818  # what leaving is played by
    pass


def leave():
    raise Left


def test_a_stop_that_comes_when_all_is_done_does_not_keep_a_run_from_finishing():
    """Its last loop was an evaluation, by `check`: no rank is known to have ended it."""
    asked = []
    boundaries = StepSync(Solo(), stop_requested=lambda: bool(asked), leave=leave)
    boundaries.check()
    asked.append(True)
    boundaries.finish()


def test_a_stop_that_comes_while_there_is_more_to_train_is_obeyed():
    asked = []
    boundaries = StepSync(Solo(), stop_requested=lambda: bool(asked), leave=leave)
    boundaries.check()
    asked.append(True)
    with pytest.raises(Left):
        boundaries.end_checks()
