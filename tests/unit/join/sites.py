"""A site's files, and the join that most tests are about."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from toolkit.config import parse
from toolkit.join.site import ConfFile, site_facts
from toolkit.render import PriceTable

EXAMPLE = (Path(__file__).parents[3] / "examples/join.yaml").read_text(encoding="utf-8")
PRICES = PriceTable({"m7i.2xlarge": Decimal("0.4032")})
SLURM_CONF = """\
ClusterName=racks
SlurmctldHost=slurm1(10.1.0.5)
SlurmUser=slurm
AuthType=auth/munge
SlurmctldParameters=enable_configless
ResumeProgram=/site/resume
SuspendProgram=/site/suspend
SuspendTime=600
SuspendExcNodes=rack1
NodeName=rack[1-4] CPUs=4 State=UNKNOWN
PartitionName=main Nodes=rack[1-4] Default=YES
"""


def join(old: str = "", new: str = ""):
    """Return the example, with one text replaced."""
    assert old in EXAMPLE
    return parse(EXAMPLE.replace(old, new, 1) if old else EXAMPLE)


def site(text: str = SLURM_CONF, version: str = "24.11.5", **included: str):
    """Return the facts of a site with this slurm.conf and included files."""
    files = [ConfFile("/etc/slurm/slurm.conf", text)]
    files += [ConfFile(f"/etc/slurm/{name}.conf", body) for name, body in included.items()]
    return site_facts(files, version=version)
