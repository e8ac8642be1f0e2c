"""What smoke.sbatch has torchrun start on every rank."""

import sys

from toolkit.training.__main__ import main

sys.exit(main(["allocation-check"]))
