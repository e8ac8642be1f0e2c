"""Check the allocation on every rank; smoke.sbatch starts it by torchrun."""

import sys

from toolkit.training.__main__ import main

sys.exit(main(["allocation-check"]))
