"""The record of a run, for docs/benchmarks.md: JSON, and a table for people."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

UNIT = {"seconds": "s", "usd": "USD"}


@dataclass(slots=True)
class Record:
    """Figures and output of a run."""

    size: str
    place: str
    node_type: str
    began: str
    estimate_usd: str
    figures: dict[str, float] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    cleaned: bool = False

    @property
    def passed(self) -> bool:
        """Return whether all was as it must be, and nothing is left."""
        return self.cleaned and not self.problems

    def write(self, folder: Path) -> None:
        """Write record.json and record.md."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**asdict(self), "passed": self.passed}, indent=2)
        (folder / "record.json").write_text(text + "\n", encoding="utf-8")
        (folder / "record.md").write_text(self.markdown(), encoding="utf-8")

    def markdown(self) -> str:
        """Return the section for docs/benchmarks.md."""
        verdict = "passed" if self.passed else "failed"
        lines = [
            f"### aws-test {self.size}: {verdict}",
            "",
            f"{self.began}, {self.place}, {self.node_type}. Estimate {self.estimate_usd} USD.",
            "",
            "| figure | |",
            "|---|---|",
            *(
                f"| {_words(name)} | {value:g} {_unit(name)} |"
                for name, value in self.figures.items()
            ),
            "",
            *(f"- **{problem}**" for problem in self.problems),
        ]
        for name, text in self.seen.items():
            lines += ["", f"{name}:", "", "```", *text.splitlines(), "```"]
        return "\n".join(lines).rstrip() + "\n"


def _words(name: str) -> str:
    return " ".join(word for word in name.split("_") if word not in UNIT)


def _unit(name: str) -> str:
    return UNIT.get(name.rpartition("_")[2], "")
