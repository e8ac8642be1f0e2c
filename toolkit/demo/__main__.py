"""`python -m toolkit.demo`: what `make demo` runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from toolkit.demo.commands import ToolkitCommand
from toolkit.demo.demo import Demo
from toolkit.demo.phases import PhaseDisplay, PhaseFailed
from toolkit.errors import ToolkitError


def main() -> int:
    """Play the phases, then print the cost.

    Returns 1 when a phase failed, 130 when a person stopped it, else the exit code of the report.
    """
    parser = argparse.ArgumentParser(prog="python -m toolkit.demo", description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("examples/local.yaml"))
    path: Path = parser.parse_args().config
    console = Console()
    display = PhaseDisplay(console)
    toolkit = ToolkitCommand(path)
    console.print("[bold]From nothing to a model trained on spot, on one machine[/bold]\n")
    try:
        Demo(toolkit, display).play()
    except (PhaseFailed, ToolkitError) as failure:
        _print_failure(console, failure)
        return 1
    except KeyboardInterrupt:
        console.print("\nstopped; `make demo` continues, `make clean` removes the local cloud")
        return 130
    seconds = sum(timing.seconds for timing in display.timings)
    console.print(f"\n[dim]all phases: {seconds:.0f} s[/dim]\n")
    return toolkit.run_in_terminal(["report", "--config", str(path), "--record-mlflow"])


def _print_failure(console: Console, failure: PhaseFailed | ToolkitError) -> None:
    """Print the failure, its evidence and advice."""
    remedy = failure.remedy if isinstance(failure, PhaseFailed) else failure.next_step
    evidence = failure.evidence if isinstance(failure, PhaseFailed) else ""
    console.print(f"\n[red]failed:[/red] {escape(str(failure))}", highlight=False)
    if evidence:
        console.print(f"[dim]{escape(evidence)}[/dim]", highlight=False)
    if remedy:
        console.print(f"[bold]try:[/bold] {escape(remedy)}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
