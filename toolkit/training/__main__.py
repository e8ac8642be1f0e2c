"""Start a program of the training library by its name.

    python -m toolkit.training COMMAND [ARGUMENT ...]

Jobscripts and people start these programs by name, so that modules may move. Only the module of the
command is imported: a batch script on its way to requeue has no seconds to lose.
"""

import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "allocation-check": ("tools.allocation_check", "check GPUs, network and collectives of a job"),
    "audit": ("recording.audit", "check that each step of a run counts exactly once"),
    "end-of-attempt": ("requeue.end_of_attempt", "judge an attempt: done, requeue, hold or fail"),
    "goodput": ("recording.goodput", "split a run's time and cost into useful and lost"),
    "notebook-idle": ("tools.notebook_idle", "wait until a notebook server is idle"),
    "oci-bundle": ("tools.oci_bundle", "write the OCI bundle that runc starts for a job"),
    "replay": ("reproduce.replay", "submit a run again as it was"),
    "similar-run": ("reproduce.similar_run", "print the stop forecast of the most similar run"),
    "start-check": ("requeue.start_check", "decide whether a restarted attempt may begin"),
    "summary": ("recording.summary", "print a run's folder as one JSON object"),
    "sweep-status": ("sweeps.status", "print the state of a sweep's trials"),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    2 when there is no command of that name.
    """
    name, *arguments = words or sys.argv[1:] or ("--help",)
    if name not in COMMANDS:
        is_help = name in ("-h", "--help")
        (sys.stdout if is_help else sys.stderr).write(_usage())
        return 0 if is_help else 2
    module = import_module(f"toolkit.training.{COMMANDS[name][0]}")
    return int(module.main(arguments))


def _usage() -> str:
    usage_lines = [f"  {name:<18}{text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        ["usage: python -m toolkit.training COMMAND [ARGUMENT ...]", "", *usage_lines, ""]
    )


if __name__ == "__main__":
    sys.exit(main())
