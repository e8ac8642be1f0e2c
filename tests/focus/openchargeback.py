"""OpenChargeback imports a FOCUS file into its database.

It is a consumer of FOCUS that this project has no part in. $TOOLKIT_OPENCHARGEBACK names the Python
of its environment (docs/finance.md).
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections import defaultdict
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "TOOLKIT_OPENCHARGEBACK"
MICRO = Decimal("0.000001")
# Its charges have a payer by a tag that our files lack. The account stands in.
CONFIG = """\
database:
  path: {folder}/billing.db
tag_mapping:
  pi_email: account
logging:
  file: {folder}/openchargeback.log
"""


def imported(path: Path, folder: Path) -> dict[str, Decimal]:
    """Import a file; return each account's cost in the database, in dollars.

    The folder must not exist. Rows without an account are refused, as they have no payer.
    """
    python = os.environ.get(VARIABLE)
    assert python, f"${VARIABLE} names the Python of OpenChargeback's environment"
    folder.mkdir()
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(folder=folder))
    argv = [
        python, "-c", "from openchargeback.cli import app; app()", "ingest", str(path),
        "--source", "slurm", "--config", str(config),
    ]  # fmt: skip
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=folder, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with closing(sqlite3.connect(folder / "billing.db")) as database:
        charges = database.execute("SELECT pi_email, billed_cost FROM charges").fetchall()
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for account, usd in charges:
        sums[account] += Decimal(usd).quantize(MICRO)  # it keeps doubles
    return dict(sums)
