"""Run a training script of the toolkit's, with pauses in the job's first attempt.

paced.py SCRIPT [arguments…]

The job must still train when its interruption notice comes, however busy the test host is. Pauses
cost less CPU than more steps. Later attempts have no pauses.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.training import Run

if TYPE_CHECKING:
    from toolkit.training.sample_order import Batch

PAUSE = 0.5  # seconds after each step
step = Run.step


def paced_step(run: Run, batch: Batch, **metrics: Any) -> None:
    step(run, batch, **metrics)
    time.sleep(PAUSE)


if not os.environ.get("SLURM_RESTART_COUNT"):
    Run.step = paced_step
sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
