"""Command that makes mutants and runs the tests on them.

python -m tests.mutants [by-hand | MODULE ...]
"""

from __future__ import annotations

import sys

from tests.mutants import by_hand, by_tool

if __name__ == "__main__":
    arguments = sys.argv[1:]
    raise SystemExit(
        by_hand.main(arguments[1:]) if arguments[:1] == ["by-hand"] else by_tool.main(arguments)
    )
