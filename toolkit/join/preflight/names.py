"""Rules about nodes and partitions: names that meet, and lists that would take cloud nodes in."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from toolkit.join.hostlists import compressed, expanded
from toolkit.join.preflight.findings import Hit, Origin, SiteRule
from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.rule import MAN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.preflight.facts import PreflightFacts
    from toolkit.join.site import ConfFile

TOPOLOGY: Final = "https://slurm.schedmd.com/topology.conf.html"
_TOPOLOGY_NODES: Final = re.compile(
    r"^\s*SwitchName\s*=[^#\n]*?\bNodes\s*=\s*([^\s#]+)", re.IGNORECASE | re.MULTILINE
)
_DEFAULTS: Final = re.compile(
    r"^\s*(?:NodeName|PartitionName)\s*=\s*DEFAULT\b[^#\n]*", re.IGNORECASE | re.MULTILINE
)


def _node_names(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    ours = set(cloud.nodes)
    fix = "Rename the pool in cluster.yaml: the site's nodes keep their names."
    on_lines: set[str] = set()
    for line in facts.site.nodes:
        both = sorted(ours & set(line.names))
        on_lines.update(line.names)
        if both:
            state = line.values.get("state", "").upper()
            kept = ", kept for later by State=FUTURE" if state == "FUTURE" else ""
            text = f"the site has {both[0]}{_more(len(both) - 1)} already{kept}"
            yield Hit(Origin(line.place.file, line.place.line), text, fix)
    for node in facts.nodes or ():
        if node.name in ours - on_lines:
            text = f"slurmctld has a node {node.name} already, which no file names"
            setting = shlex.join(("scontrol", "delete", f"nodename={node.name}"))
            yield Hit(Origin("scontrol show nodes"), text, fix, setting)


def _partition_names(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    for part in facts.site.partitions:
        if part.name.lower() in {name.lower() for name in cloud.partitions}:
            text = f"the site has a partition {part.name} already"
            fix = "Rename the cloud partition in cluster.yaml: the site's keeps its name."
            yield Hit(Origin(part.place.file, part.place.line), text, fix)


def _all_nodes(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    for part in facts.site.partitions:
        if "ALL" in {word.upper() for word in part.values.get("nodes", "").split(",")}:
            text = f"partition {part.name} is of ALL nodes: its jobs would start instances, and"
            text += " its SuspendTime holds for cloud nodes too"
            fix = "List the racks by name."
            setting = f"PartitionName={part.name} Nodes={_racks(facts)}"
            yield Hit(Origin(part.place.file, part.place.line), text, fix, setting)


def _racks(facts: PreflightFacts) -> str:
    """Return the site's own nodes as a hostlist."""
    return compressed(name for line in facts.site.nodes for name in line.names)


def _reservations(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    for item in facts.reservations or ():
        if "ALL_NODES" in item.flags:
            text = f"the reservation {item.name} is of ALL nodes, and takes cloud nodes in as they"
            text += " come"
            fix = "Update it to a list of the racks."
            words = (f"reservationname={item.name}", f"nodes={_racks(facts)}")
            setting = shlex.join(("scontrol", "update", *words))
            yield Hit(Origin("scontrol show reservations"), text, fix, setting)


def _default_lines(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    for file in facts.site.files:
        for match in _DEFAULTS.finditer(file.text):
            line = file.text.count("\n", 0, match.start()) + match[0].count("\n") + 1
            text = f"`{' '.join(match[0].split())[:120]}` holds for each line after it, also for"
            text += " those of an include at the end"
            fix = "State these keys for cloud nodes too, or include their file before this line."
            yield Hit(Origin(file.path, line), text, fix)


def _topology(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    """Find cloud nodes missing in a tree.

    On Slurm 24.11.5 `sbatch` refused each job for such a node ("Requested topology configuration is
    not available"), and took it once they had a switch. topology/block takes it without a block.
    """
    tree = _tree(facts)
    if tree is None:
        return
    hostlists, origin = tree
    named = {name for hostlist in hostlists for name in expanded(hostlist)}
    missing = [name for name in cloud.nodes if name not in named]
    if not missing:
        return
    text = f"topology/tree does not name {missing[0]}{_more(len(missing) - 1)}: Slurm refuses"
    text += " every job for them"
    fix = "Give cloud nodes a switch of their own; no job then spans racks and cloud."
    setting = f"SwitchName=cloud Nodes={cloud.hostlist}"
    if origin.name.endswith(".yaml"):
        setting = f"    - switch: cloud\n      nodes: {cloud.hostlist}"
    yield Hit(origin, text, fix, setting)


def _tree(facts: PreflightFacts) -> tuple[tuple[str, ...], Origin] | None:
    """Return the switches' nodes and their place, None without a tree."""
    document = facts.files.get("topology.yaml")
    if document is not None:  # topology.conf is then ignored
        return _yaml_tree(document)
    if facts.value("TopologyPlugin") != "topology/tree":
        return None
    file = facts.files.get("topology.conf")
    if file is None:
        return (), facts.origin("TopologyPlugin")
    return tuple(_TOPOLOGY_NODES.findall(file.text)), Origin(file.path)


def _yaml_tree(file: ConfFile) -> tuple[tuple[str, ...], Origin] | None:
    """Return the default tree of a topology.yaml, None without one."""
    try:
        entries = YAML(typ="safe", pure=True).load(file.text)
    except (YAMLError, ValueError, RecursionError):
        return None
    maps = [item for item in entries if isinstance(item, dict)] if isinstance(entries, list) else []
    default = next((item for item in maps if item.get("cluster_default") is True), None)
    entry = default or (maps[0] if maps else {})
    tree = entry.get("tree")
    switches = tree.get("switches") if isinstance(tree, dict) else None
    if not isinstance(switches, list):
        return None
    rows = [row for row in switches if isinstance(row, dict)]
    return tuple(row["nodes"] for row in rows if isinstance(row.get("nodes"), str)), Origin(
        file.path
    )


def _more(count: int) -> str:
    return f" and {count} more" if count else ""


_E, _W = Severity.ERROR, Severity.WARNING
RULES: Final = (
    SiteRule("node-name-taken", _E, MAN + "#OPT_NodeName", _node_names),
    SiteRule("partition-name-taken", _E, MAN + "#OPT_PartitionName", _partition_names),
    SiteRule("partition-of-all-nodes", _E, MAN + "#OPT_Nodes_1", _all_nodes),
    SiteRule("topology-missing", _E, TOPOLOGY, _topology),
    SiteRule("reservation-of-all-nodes", _W, "https://slurm.schedmd.com/reservations.html",
             _reservations),
    SiteRule("default-line", _W, MAN + "#OPT_NodeName", _default_lines),
)  # fmt: skip
