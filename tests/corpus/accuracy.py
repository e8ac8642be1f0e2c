"""Accuracy of the failure rules: python -m tests.corpus.accuracy

`attempts/` was written together with the rules. `held-out/` came after edition 1 and `later/` after
edition 3, in the shapes of public issues. Neither was tried before its first count;
docs/stopping.md has those counts. Each folder's name is the label. The exit code is 1 if any answer
is wrong.
"""

import sys
from collections import Counter
from pathlib import Path

from toolkit.training.requeue.failure_cause import Evidence, tail
from toolkit.training.requeue.failure_rules import VERSION, classify

HERE = Path(__file__).parent
SETS = ("attempts", "held-out", "later")


def logs(name: str) -> list[Path]:
    """Return the labelled logs of one set."""
    return sorted((HERE / name).glob("*/*.log"))


def answer(log: Path) -> str:
    """Return the cause that the log alone gives."""
    return str(classify(Evidence(code=1, log=tail(log.read_text()))).cause)


def grid(pairs: Counter[tuple[str, str]]) -> str:
    """Return the confusion table.

    It has a row for each label and a column for each answer.
    """
    labels = sorted({label for pair in pairs for label in pair})
    rows = [["label \\ answer", *labels, "right"]]
    for label in labels:
        counts = [pairs[label, given] for given in labels]
        rows.append([label, *map(str, counts), f"{pairs[label, label]}/{sum(counts)}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    every: Counter[tuple[str, str]] = Counter()
    for name in SETS:
        pairs = Counter((log.parent.name, answer(log)) for log in logs(name))
        right = sum(count for (label, given), count in pairs.items() if label == given)
        sys.stdout.write(f"{name}: {right} of {sum(pairs.values())} right, edition {VERSION}\n")
        every += pairs
    sys.stdout.write(grid(every))
    return 0 if all(label == given for label, given in every) else 1


if __name__ == "__main__":
    sys.exit(main())
