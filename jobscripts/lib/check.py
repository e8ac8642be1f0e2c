"""What smoke.sbatch has torchrun start on every rank."""

import sys

from toolkit.training.smoke import main

sys.exit(main())
