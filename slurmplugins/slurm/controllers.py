"""The controller of a site that is in charge: the first whose slurmctld answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.system.command import Runner

PING_SECONDS: Final = 20.0
"""scontrol waits for each controller that is down as long as MessageTimeout, by default 10 s."""
_PING: Final = re.compile(r"Slurmctld\((\S+)\) at (\S+) is (UP|DOWN)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Controller:
    """A host of SlurmctldHost."""

    host: str
    answers: bool


def parse_ping(text: str) -> tuple[Controller, ...]:
    """Return the controllers of `scontrol ping`, primary first."""
    return tuple(Controller(host, state.upper() == "UP") for _, host, state in _PING.findall(text))


def active_host(controllers: Sequence[Controller]) -> str:
    """Return the host whose slurmctld is in charge, "" if none answers.

    A backup gives its work back as soon as the primary answers again.
    """
    return next((item.host for item in controllers if item.answers), "")


def is_active(runner: Runner, slurm_bin: str, host: str) -> bool:
    """Return whether this host's slurmctld is in charge.

    False if nobody knows: the next pass asks again.
    """
    result = runner.run([f"{slurm_bin}/scontrol", "ping"], timeout=PING_SECONDS)
    active = active_host(parse_ping(result.stdout))
    return bool(active) and _short(active) == _short(host)


def _short(host: str) -> str:
    return host.partition(".")[0].lower()
