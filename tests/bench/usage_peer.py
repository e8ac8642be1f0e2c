"""Contestant: slurm2sql's own parser, unchanged, into SQLite.

usage_peer.py columns | FILE DATABASE

Its own virtualenv's Python runs it. The file stands for the output of sacct, in slurm2sql's own
columns and with its own delimiter.
"""

from __future__ import annotations

import json
import resource
import sqlite3
import sys

import slurm2sql

COLUMNS = [name for name in (*slurm2sql.COLUMNS, *slurm2sql.COLUMNS_EXTRA) if name[0] != "_"]

if sys.argv[1] == "columns":
    sys.stdout.write(json.dumps(COLUMNS))
else:
    database = sqlite3.connect(sys.argv[2])
    with open(sys.argv[1]) as lines:  # noqa: PTH123 - as it opens files itself
        errors = slurm2sql.slurm2sql(database, raw_sacct=lines)
    (rows,) = database.execute("SELECT count(*) FROM slurm").fetchone()
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 - a line's worth
        peak = int(status.read().split("VmHWM:")[1].split()[0]) / 1024
    cpu = used.ru_utime + used.ru_stime
    found = {"cpu": cpu, "peak_mb": peak, "rows": rows, "errors": errors}
    sys.stdout.write(json.dumps(found))
