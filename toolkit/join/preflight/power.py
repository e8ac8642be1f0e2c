"""Rules about nodes that come and go: the node table, power saving, slurmctld's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.join.hostlists import expanded
from toolkit.join.preflight.findings import Hit, SiteFinding, SiteRule
from toolkit.join.preflight.versions import series
from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.check import check_slurm_conf
from toolkit.lint.slurm_conf.parser import Line, Setting, SlurmConf
from toolkit.lint.slurm_conf.rule import MAN
from toolkit.render.versions import SERIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.preflight.facts import PreflightFacts

PARAMETERS: Final = "SlurmctldParameters"
LINTED: Final = frozenset(
    {
        "keep-power-save", "memory-percent-last", "power-save-interval", "prolog-hold", "rates",
        "slurmd-timeout", "spelling", "suspend-exc-down", "tree-width-corrupts", "unpatched-slurm",
    }
)  # fmt: skip
"""The linter's rules that hold for a site's file too; the others are about our own."""


def parameters_line(facts: PreflightFacts) -> str:
    """Return SlurmctldParameters with everything that nodes need.

    Each finding about it has the same line, so that a person changes it once.
    """
    add = ("enable_configless", "idle_on_node_suspend")
    return facts.line_with(PARAMETERS, add=add, remove=("cloud_dns", "cloud_reg_addrs"))


def _node_table(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    """Find a MaxNodeCount that cloud nodes exceed.

    slurm.conf(5) says that a small one is ignored. slurmctld 24.11.5 ends: "fatal: Unable to add
    node, node table is full".
    """
    most = facts.site.settings.get("maxnodecount")
    if most is None or not (most.value.isascii() and most.value.isdecimal()):
        return
    present = {name for line in facts.site.nodes for name in line.names}
    present |= {node.name for node in facts.nodes or ()}
    needed = len(present | set(cloud.nodes))
    if needed > int(most.value):
        text = f"{needed} nodes, {len(cloud.nodes)} of them cloud nodes, are more than"
        text += f" MaxNodeCount={most.value[:10]}: slurmctld does not start"
        fix = "Raise it, or remove it where no node is made by `scontrol create`."
        yield Hit(facts.origin("MaxNodeCount"), text, fix, f"MaxNodeCount={needed}")


def _exceptions(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    parts = {word.lower() for word in facts.words("SuspendExcParts")}
    ours = {name.lower() for name in cloud.partitions}
    for name in cloud.partitions:
        if name.lower() in parts:
            text = f"SuspendExcParts has cloud partition {name}: its nodes are never powered down"
            origin = facts.origin("SuspendExcParts")
            setting = facts.line_with("SuspendExcParts", remove=ours)
            yield Hit(origin, text, f"Remove {name}.", setting)
    excluded = {
        name for part in facts.value("SuspendExcNodes").split(":") for name in expanded(part)
    }
    if both := sorted(excluded & set(cloud.nodes)):
        text = f"SuspendExcNodes has cloud node {both[0]}: it is never powered down"
        yield Hit(facts.origin("SuspendExcNodes"), text, "Remove cloud nodes.")


def _idle_on_suspend(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    if facts.parameter(PARAMETERS, "idle_on_node_suspend") is None:
        text = "nodes that are down or drained when they power down stay so for ever"
        fix = "Add idle_on_node_suspend; it concerns nodes alone that are powered down."
        yield Hit(facts.origin(PARAMETERS), text, fix, parameters_line(facts))


def _cloud_dns(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    if facts.parameter(PARAMETERS, "cloud_dns") is None:
        return
    if any(facts.addresses.get(name) for name in cloud.nodes[:1]):
        return
    text = (
        "with cloud_dns slurmctld tells nobody cloud nodes' addresses, and the site's DNS does not"
    )
    text += f" know {cloud.nodes[0] if cloud.nodes else 'them'}: srun can't reach them"
    fix = "Remove cloud_dns: slurmctld then sends each node's address along."
    yield Hit(facts.origin(PARAMETERS), text, fix, parameters_line(facts))


def _cloud_reg_addrs(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    if facts.parameter(PARAMETERS, "cloud_reg_addrs") is not None:
        text = "cloud_reg_addrs is the default since 23.11, and an error in slurmctld's log"
        yield Hit(facts.origin(PARAMETERS), text, "Remove it.", parameters_line(facts))


def _fan_out(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    """Find a tree of messages with racks and cloud nodes in it.

    Since 23.11 cloud nodes are in slurmctld's tree, so a rack node passes messages on to them. The
    same series has RoutePart (CHANGELOG/slurm-23.11.md).
    """
    racks = len({name for line in facts.site.nodes for name in line.names})
    width = facts.number("TreeWidth") or 16
    by_partition = "routepart" in {word.lower() for word in facts.words("TopologyParam")}
    if racks and not by_partition and racks + len(cloud.nodes) > width:
        text = f"slurmctld's messages go through a tree of {width}: rack nodes pass them on to"
        text += " cloud nodes and back, on SlurmdPort"
        fix = "Open SlurmdPort both ways between racks and subnets, or send by partition."
        setting = facts.line_with("TopologyParam", add=("RoutePart",))
        yield Hit(facts.origin("TopologyParam"), text, fix, setting)


def linted(facts: PreflightFacts, cloud: CloudSide) -> Iterator[SiteFinding]:
    """Yield the linter's findings in the site's files."""
    version = series(facts.site.version)
    if version not in SERIES:
        return
    settings = {
        key: Setting(item.name, item.value, item.place.line)
        for key, item in facts.site.settings.items()
    }
    ours = Line(cloud.hostlist, {"state": "CLOUD"}, 0)
    for item in check_slurm_conf(SlurmConf(settings, (ours,)), version):
        if item.slug in LINTED:
            origin = str(facts.origin(item.setting))
            yield SiteFinding(
                item.slug, item.severity, item.line, item.message, item.fix, origin, "", item.source
            )


_E, _W = Severity.ERROR, Severity.WARNING
RULES: Final = (
    SiteRule("node-table", _E, MAN + "#OPT_MaxNodeCount", _node_table),
    SiteRule("suspend-exceptions", _E, MAN + "#OPT_SuspendExcParts", _exceptions),
    SiteRule("idle-on-suspend", _E, MAN + "#OPT_idle_on_node_suspend", _idle_on_suspend),
    SiteRule("cloud-dns", _E, MAN + "#OPT_cloud_dns", _cloud_dns),
    SiteRule("cloud-reg-addrs", _W, MAN + "#OPT_cloud_reg_addrs", _cloud_reg_addrs),
    SiteRule("fan-out", _W, MAN + "#OPT_RoutePart", _fan_out),
)
