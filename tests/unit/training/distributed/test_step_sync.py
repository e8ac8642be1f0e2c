"""The agreement of ranks at the end of loops.

The tests of test_run show its use in runs.
"""

import pytest

from toolkit.training.distributed.process_group import Solo
from toolkit.training.distributed.step_sync import StepSync


class Left(Exception):  # noqa: N818  # stands for the exception that ends a run
    pass


def leave():
    raise Left


def test_a_stop_that_comes_when_all_is_done_does_not_keep_a_run_from_finishing():
    """Finish the run after an evaluation loop with `check`.

    `check` does not know the last item of its loop. A stop request that comes later must not stop
    the run.
    """
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
