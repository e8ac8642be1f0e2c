"""Histories that a night's search found to be faults, each by its shortest steps."""

from __future__ import annotations

from tests.property.engine.test_engine_machine import Trouble


def test_a_late_call_gives_back_no_node_that_another_job_has_now():
    """Resume jobs 3 and 4 after slurmctld gave their nodes away.

    Jobs 1 and 2 have them. slurmctld waits for one node of job 4 no longer, so the run gives back
    the others. One of them is job 2's by now. Job 2 is requeued, and the instance of its other node
    is for nobody until Slurm powers the node down. The search of 2026-11-26 found it, at 1145fd32.
    """
    state = Trouble()
    try:
        state.submit_whole_and_resume(beside=False, fuse=8, more=2, size=2)
        state.submit_beside(late=False, more=1, size=1)
        state.one_error(code="UnauthorizedOperation")
        state.one_of_two_pools_has_nothing_and_the_job_is_tried_again(rounds=8, size=3)
        state.requeued_jobs_start_again()
        state.slurmctld_loses_its_call()
        state.two_runs_overlap(at=1, size=4)
    finally:
        state.teardown()
