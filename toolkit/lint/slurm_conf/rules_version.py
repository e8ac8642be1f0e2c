"""Rules about the version of Slurm itself, whatever its slurm.conf says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.rule import ConfRule, Hit
from toolkit.render.slurm import CONTAINERS_SINCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.lint.slurm_conf.parser import SlurmConf
    from toolkit.render.versions import SlurmVersion

UPGRADES: Final = "https://slurm.schedmd.com/upgrades.html"
UNPATCHED: Final = {"23.11": "May 2025", "24.05": "November 2025"}
"""Series without security fixes, neither of SchedMD nor of a distribution, and since when. 24.11 is
not one: Debian 13 has fixes for it."""
ONE_KEY: Final = "23.11"
"""The series that knows one key at a time."""


def _unpatched(_conf: SlurmConf, version: SlurmVersion) -> Iterator[Hit]:
    since = UNPATCHED.get(str(version))
    if since is None:
        return
    text = f"Slurm {version} has had no security fixes since {since}"
    text += "; its key can't be rotated" if str(version) == ONE_KEY else ""
    text += "; srun --container is off" if version < CONTAINERS_SINCE else ""
    fix = "add packages of a newer one: `toolkit image packages add`, then slurm.packages: locked"
    yield Hit("version", text, fix)


RULES: Final = (ConfRule("unpatched-slurm", Severity.WARNING, UPGRADES, _unpatched),)
