"""Nodes for people's commands: by pyslurm where it says what scontrol says, else by scontrol.

The engine's own programs ask scontrol alone (docs/adr/0033).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import SlurmUnreachable
from slurmplugins.model import json_input
from slurmplugins.slurm import json_parser, pyslurm_nodes
from slurmplugins.slurm.scontrol import READ_TIMEOUT, ScontrolSlurm
from slurmplugins.system.command import TIMED_OUT

if TYPE_CHECKING:
    from slurmplugins.model.node import Node
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log

PROGRAM: Final = (sys.executable, "-P", "-s", pyslurm_nodes.__file__)

_REASON_LENGTH: Final = 200
"""Characters."""


class PyslurmUnused(Exception):  # noqa: N818 - the name tells the event
    """pyslurm has no answer that can be used; the message says why."""


class NodeReader:
    """A reader of all nodes. pyslurm's have no instance id; people's commands take EC2's."""

    def __init__(
        self,
        runner: Runner,
        bin_dir: str,
        *,
        slurm_conf: Path | None = None,
        log: Log | None = None,
    ) -> None:
        self._runner = runner
        self._bin = bin_dir
        self._slurm_conf = slurm_conf
        self._log = log
        self.source = ""
        """The reader that answered last: `pyslurm 25.11.2`, or `scontrol` with the reason."""

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes. Raises SlurmUnreachable or SlurmRefused."""
        try:
            return self._pyslurm_nodes()
        except PyslurmUnused as unused:
            self.source = f"scontrol: {unused}"
        return ScontrolSlurm(self._runner, self._bin, log=self._log).nodes()

    def _pyslurm_nodes(self) -> tuple[Node, ...]:
        """Return all nodes. Raises PyslurmUnused or SlurmUnreachable."""
        text = ask_pyslurm(self._runner, self._slurm_conf)
        try:
            answer = json_input.loads(text)
            nodes = tuple(json_parser.node(item) for item in answer["nodes"])
            version = answer["pyslurm"]
        except (ValueError, KeyError, TypeError) as error:
            raise PyslurmUnused(f"pyslurm's answer can't be read: {error}") from error
        self.source = f"pyslurm {version}"
        return nodes


def ask_pyslurm(runner: Runner, slurm_conf: Path | None = None) -> str:
    """Return all nodes as pyslurm's program prints them.

    Raises PyslurmUnused if pyslurm is not there, or does not say what scontrol would say.
    Raises SlurmUnreachable if slurmctld does not answer: to ask scontrol too would double the wait.
    """
    path = slurm_conf or Path(os.environ.get("SLURM_CONF") or paths.SLURM_CONF)
    # Without the file, `import pyslurm` waits a minute and then ends its process.
    if not os.access(path, os.R_OK):
        raise PyslurmUnused(f"{path} can't be read")
    if importlib.util.find_spec("pyslurm") is None:
        raise PyslurmUnused("pyslurm is not installed")
    result = runner.run(PROGRAM, timeout=READ_TIMEOUT)
    if result.returncode in (pyslurm_nodes.UNREACHABLE, TIMED_OUT):
        message = result.stderr.strip()[-_REASON_LENGTH:]
        raise SlurmUnreachable(f"slurmctld did not answer: {message}")
    if result.returncode:
        reason = result.stderr.strip() or f"pyslurm's process ended with {result.returncode}"
        raise PyslurmUnused(reason[-_REASON_LENGTH:])
    return result.stdout
