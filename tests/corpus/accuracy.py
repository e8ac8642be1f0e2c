"""How often the rules are right: python -m tests.corpus.accuracy

`attempts/` was written together with the rules, `held-out/` after them, from public issues that
they had not been tried on; each folder's name is the label. Exit code 1 when any answer is wrong.
"""

import sys
from collections import Counter
from pathlib import Path

from toolkit.training.cause import Evidence, tail
from toolkit.training.cause_rules import VERSION, classify

HERE = Path(__file__).parent
SETS = ("attempts", "held-out")


def logs(name: str) -> list[Path]:
    """The labelled logs of one set."""
    return sorted((HERE / name).glob("*/*.log"))


def answer(log: Path) -> str:
    """The cause that the log alone gives."""
    return str(classify(Evidence(code=1, log=tail(log.read_text()))).cause)


def main() -> int:
    wrong = 0
    for name in SETS:
        pairs = Counter((log.parent.name, answer(log)) for log in logs(name))
        right = sum(count for (label, given), count in pairs.items() if label == given)
        sys.stdout.write(f"{name}: {right} of {sum(pairs.values())} right, edition {VERSION}\n")
        for (label, given), count in sorted(pairs.items()):
            sys.stdout.write(f"  {label:<14} {given:<14} {count}\n")
            wrong += count * (label != given)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
