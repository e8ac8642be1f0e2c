"""Law of the step history: it counts every step once.

It holds for any kills and stops of a run.
"""

import tempfile
from pathlib import Path

from hypothesis import given, settings, strategies as st

from toolkit.training.recording.audit import audit
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.run_folder.steps import Resumption, StepLog, StepRecord
from toolkit.training.sample_order import SampleOrder, fingerprint

ORDER = SampleOrder(size=20, global_batch=6, seed=5)
BATCHES = list(ORDER.batches(step=0, position=0, epochs=3, rank=0, world_size=1))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.booleans()), max_size=6))
def test_any_sequence_of_attempts_audits_clean_with_the_lost_work_counted(attempts):
    """Run attempts that lose their last steps and may tear a line.

    An attempt that got an interruption notice loses none.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        run.create()
        run.agree_order(ORDER, 3)
        start, lost_work = 0, 0
        plans = [*attempts, (len(BATCHES), 0, False)]
        for number, (steps, lost, tear) in enumerate(plans):
            end = min(start + steps, len(BATCHES))
            log = StepLog(run.steps)
            log.resume(Resumption(number, start, 0.0))
            for batch in BATCHES[start:end]:
                log.step(
                    StepRecord(
                        number,
                        batch.step,
                        batch.epoch,
                        batch.start,
                        batch.stop,
                        len(batch.ids),
                        fingerprint(batch.ids),
                        0.0,
                    )
                )
            log.close()
            if tear:
                with run.steps.open("ab") as stream:
                    stream.write(b'{"event": "st')
            kept = max(start, end - lost)
            lost_work += end - kept
            start = kept
        found = audit(run.path)
        assert found.ok, found.problems
        assert found.steps == len(BATCHES)
        assert len(found.repeated) == lost_work
