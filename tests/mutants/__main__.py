"""Command that makes mutants and runs the tests on them.

python -m tests.mutants [by-hand [FILE ...] | mended [FILE ...] | MODULE ...]
"""

from __future__ import annotations

import sys

from tests.mutants import by_hand, by_tool
from tests.mutants.mended import MENDED
from tests.mutants.reviewed import REVIEWED

TABLES = {"by-hand": REVIEWED, "mended": MENDED}

if __name__ == "__main__":
    match sys.argv[1:]:
        case [table, *paths] if table in TABLES:
            raise SystemExit(by_hand.main(TABLES[table], paths))
        case modules:
            raise SystemExit(by_tool.main(modules))
