"""The head's part of a rotation of Slurm's key: its own daemons, and which nodes have the keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BootError
from slurmplugins.model import slurm_keys
from slurmplugins.node import key_files
from slurmplugins.node.key_follower import write_loaded
from slurmplugins.slurm import key_requests, slurmdbd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmplugins.model.login_node import LoginNodeReport
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner

# slurmdbd reads its key at its start alone; slurmctld holds back what it has for it meanwhile.
RESTART: Final = ("/usr/bin/systemctl", "restart", "slurmdbd.service")
# slurmctld starts itself anew, and asks every slurmd to do the same. Up to 24.11.5 it ends soon
# after if slurmdbd did not answer at that moment (SchedMD's ticket 22385).
RECONFIGURE: Final = (f"{paths.SLURM_BIN}/scontrol", "reconfigure")
TIMEOUT: Final = 120.0
ANSWER_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Taken:
    """The keys that the head has, and the nodes that lack them."""

    generation: str
    confirmed: str
    """The keys that all daemons had before; empty before any rotation."""
    lacking: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeadKey:
    """The head's keys, with the parts that change them."""

    read_secret: Callable[[], str]
    root: Path
    loaded: Path
    """The file that names the generation which the daemons have."""
    requests: Path
    runner: Runner
    clock: Clock
    read_login_nodes: Callable[[], tuple[LoginNodeReport, ...]]
    """Returns the login nodes that are not silent."""

    def fetch(self) -> bool:
        """Write the secret to Slurm's key files; return whether they changed.

        The daemons must be restarted then. Raises CloudError, BootError or OSError.
        """
        return key_files.write(self.root, slurm_keys.parse(self.read_secret()))

    def take(self, slurm: Slurm) -> Taken:
        """Bring the daemons to the secret, and tell the nodes.

        Raises CloudError, SlurmError, BootError or OSError. Safe to repeat after a kill.
        """
        keys = slurm_keys.parse(self.read_secret())
        key_files.write(self.root, keys)
        if self.generation() != keys.generation:
            self._run(RESTART)
            if reason := slurmdbd.wait_for_answer(self.runner, self.clock, ANSWER_SECONDS):
                raise BootError(f"slurmdbd does not answer after its restart: {reason}")
            self._run(RECONFIGURE)
            write_loaded(self.loaded, keys.generation)
        key_requests.write_wanted(self.requests, keys.generation)
        confirmed = key_requests.read_confirmed(self.requests)
        lacking = self._lacking(slurm, keys.generation)
        if not lacking:
            key_requests.write_confirmed(self.requests, keys.generation)
        return Taken(keys.generation, confirmed, lacking)

    def generation(self) -> str:
        """Return the generation that the daemons have; the first before any rotation."""
        try:
            return self.loaded.read_text(encoding="utf-8").strip()
        except OSError:
            return slurm_keys.FIRST

    def _run(self, argv: Sequence[str]) -> None:
        result = self.runner.run(argv, timeout=TIMEOUT)
        if result.returncode:
            raise BootError(f"{' '.join(argv)} failed: {result.stderr.strip()[-300:]}")

    def _lacking(self, slurm: Slurm, generation: str) -> tuple[str, ...]:
        """Return the nodes and login nodes that lack these keys.

        Nodes without an instance need none. A silent login node takes them when it reports again.
        """
        instances = [
            (node.name, node.instance_id)
            for node in slurm.nodes()
            if node.instance_id and not node.powering_off
        ]
        instances += [(report.name, report.instance_id) for report in self.read_login_nodes()]
        return tuple(
            name
            for name, instance_id in instances
            if key_requests.read_report(self.requests, name) != (generation, instance_id)
        )
