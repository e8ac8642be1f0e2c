"""Traps for nodes that come and go: power saving, registration, failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.rule import MAN, NEWS, POWER, Hit, Trap, line_of, missing
from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolkit.lint.slurm_conf.parser import Line, SlurmConf

WIDEST_TREE: Final = 46_340
"""Its square fits an int: above it, versions before 25.05.6 write past their memory."""
SHORTEST_RESUME: Final = 120
"""EC2 takes a minute to boot any instance, half of it to find capacity."""
SHORTEST_SUSPEND: Final = 30
LONGEST_INTERVAL: Final = 30


def _no_programs(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    for name in ("ResumeProgram", "SuspendProgram"):
        if conf.get(name) is None:
            yield Hit(name, "CLOUD nodes are there and nothing starts or ends them", f"set {name}")


def _no_fail_program(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if conf.get("ResumeFailProgram") is None:
        text = "a machine that comes after ResumeTimeout runs on, and nobody ends it"
        yield Hit("ResumeFailProgram", text, "set ResumeFailProgram to a program that ends it")


def _idle_on_suspend(conf: SlurmConf, _version: SlurmVersion) -> Iterable[Hit]:
    text = "nodes that are down or drained when they power down stay so forever"
    return missing(conf, "SlurmctldParameters", "idle_on_node_suspend", text)


def _configless(conf: SlurmConf, _version: SlurmVersion) -> Iterable[Hit]:
    text = "new machines find no slurm.conf: they ask slurmctld for it"
    return missing(conf, "SlurmctldParameters", "enable_configless", text)


def _never_suspended(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    """Find cloud nodes that are never powered down.

    A node's longest SuspendTime among its partitions counts, and infinite is the
    longest.
    """
    base = conf.get("SuspendTime")
    fallback = -1 if base is None or base.number is None else base.number
    ends: set[str] = set()
    never: dict[str, Line] = {}
    for part in conf.partitions:
        own = part.get("SuspendTime").lower()
        infinite = own in {"infinite", "-1"} if own else fallback == -1
        for node in conf.expanded(part.get("Nodes")):
            if infinite:
                never.setdefault(node, part)
            else:
                ends.add(node)
    cloud = {name for line in conf.cloud_nodes for name in conf.expanded(line.name)}
    stuck = sorted(cloud & never.keys())
    if stuck:
        part = never[stuck[0]]
        overlap = "although another of its partitions has one" if stuck[0] in ends else "at all"
        text = f"{stuck[0]} and {len(stuck) - 1} more are never powered down: partition {part.name}"
        text += f" gives no SuspendTime, {overlap}"
        yield Hit("SuspendTime", text, f"set SuspendTime on partition {part.name}", part.line)


def _suspends_others(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    others = [node for node in conf.nodes if node.get("state").upper() != "CLOUD"]
    if others and conf.number("SuspendTime", -1) > 0 and not conf.words("SuspendExcParts"):
        text = f"nodes that are no cloud nodes ({others[0].name}) are powered down when idle too"
        fix = "SuspendTime=INFINITE, and a SuspendTime on each cloud partition"
        yield Hit("SuspendTime", text, fix, line_of(conf, "SuspendTime"))


def _short_timeouts(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    resume = conf.number("ResumeTimeout", 60)
    if 0 <= resume < SHORTEST_RESUME:
        text = f"{resume} s is less than a launch and a boot take; nodes fail that were coming"
        fix = f"ResumeTimeout={SHORTEST_RESUME} at least; 900 for GPU types"
        yield Hit("ResumeTimeout", text, fix, line_of(conf, "ResumeTimeout"))
    suspend = conf.number("SuspendTimeout", 30)
    if 0 <= suspend < SHORTEST_SUSPEND:
        text = "a node is used again while its old machine still ends"
        fix = f"SuspendTimeout={SHORTEST_SUSPEND} at least; reconcile cuts it short when it may"
        yield Hit("SuspendTimeout", text, fix, line_of(conf, "SuspendTimeout"))


def _rates(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    for name, default in (("ResumeRate", 300), ("SuspendRate", 60)):
        rate = conf.number(name, default)
        if rate > 0:
            text = f"Slurm hands over {rate} nodes a minute, and splits large jobs to do so"
            yield Hit(name, text, f"{name}=0: the engine keeps EC2's rates", line_of(conf, name))


def _return_to_service(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    value = conf.number("ReturnToService", 0)
    if value != 2:  # noqa: PLR2004 - Slurm's number for it
        text = "a node that comes late or rebooted stays down (`Node unexpectedly rebooted`)"
        yield Hit("ReturnToService", text, "ReturnToService=2", line_of(conf, "ReturnToService"))


def _tree(conf: SlurmConf, version: SlurmVersion) -> Iterator[Hit]:
    width = conf.number("TreeWidth", 16)
    if width > WIDEST_TREE and version <= SlurmVersion(25, 5):
        text = f"TreeWidth={width} can corrupt slurmctld's memory before 25.05.6"
        yield Hit("TreeWidth", text, "leave TreeWidth out", line_of(conf, "TreeWidth"))


def _tree_hack(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    width = conf.number("TreeWidth", 16)
    if 1000 <= width <= WIDEST_TREE or width > WIDEST_TREE:  # noqa: PLR2004 - far above any tree
        text = "was needed for cloud nodes before 23.11; now it takes the fan-out away"
        yield Hit("TreeWidth", text, "leave TreeWidth out", line_of(conf, "TreeWidth"))


def _exc_nodes_empty(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    for name in ("SuspendExcNodes", "SuspendExcParts"):
        found = conf.get(name)
        if found is not None and not found.value:
            yield Hit(
                name, "slurmctld does not start with an empty list", "take it out", found.line
            )


def _exc_nodes_count(conf: SlurmConf, version: SlurmVersion) -> Iterator[Hit]:
    found = conf.get("SuspendExcNodes")
    if found is not None and ":" in found.value and version < SlurmVersion(24, 5):
        text = "before 24.05 `nodes:COUNT` counts nodes that are off too, and keeps none up"
        yield Hit("SuspendExcNodes", text, "name the nodes themselves", found.line)


def _exc_states(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if "DOWN" in {word.upper() for word in conf.words("SuspendExcStates")}:
        text = "down nodes keep their machines, and are paid for until a person looks"
        line = line_of(conf, "SuspendExcStates")
        yield Hit("SuspendExcStates", text, "take DOWN out", line)


def _intervals(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    for word in ("power_save_interval", "power_save_min_interval"):
        value = conf.parameter("SlurmctldParameters", word)
        if value is not None and value.isdecimal() and int(value) > LONGEST_INTERVAL:
            text = f"{word}={value}: each job waits up to {value} s before its nodes are asked for"
            line = line_of(conf, "SlurmctldParameters")
            yield Hit("SlurmctldParameters", text, f"leave {word} out (10 s)", line)


def _memory_percent(conf: SlurmConf, version: SlurmVersion) -> Iterator[Hit]:
    words = conf.words("SlurmctldParameters")
    at = [number for number, word in enumerate(words) if word.startswith("node_reg_mem_percent")]
    if at and at[0] != len(words) - 1 and version == SlurmVersion(25, 5):
        text = "25.05.0 and .1 misread node_reg_mem_percent when another parameter follows"
        line = line_of(conf, "SlurmctldParameters")
        yield Hit("SlurmctldParameters", text, "put it last", line)


def _slurmd_timeout(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    seconds = conf.number("SlurmdTimeout", 300)
    if seconds == 0:
        text = "a lost node is never down, and its job never comes back"
        yield Hit("SlurmdTimeout", text, "SlurmdTimeout=120", line_of(conf, "SlurmdTimeout"))


def _keep_settings(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if "keeppowersavesettings" in {word.lower() for word in conf.words("ReconfigFlags")}:
        text = "does not keep SuspendExcNodes over a restart of slurmctld, as it seems to promise"
        fix = "write what is to stay into slurm.conf"
        yield Hit("ReconfigFlags", text, fix, line_of(conf, "ReconfigFlags"))


_E, _W = Severity.ERROR, Severity.WARNING
TRAPS: Final = (
    Trap("no-power-programs", _E, POWER, _no_programs),
    Trap("no-resume-fail-program", _W, MAN + "#OPT_ResumeFailProgram", _no_fail_program),
    Trap("idle-on-suspend", _E, MAN + "#OPT_idle_on_node_suspend", _idle_on_suspend),
    Trap("configless", _E, "https://slurm.schedmd.com/configless_slurm.html", _configless),
    Trap("never-suspended", _E, MAN + "#OPT_SuspendTime_2", _never_suspended),
    Trap("suspends-others", _E, MAN + "#OPT_SuspendTime", _suspends_others),
    Trap("short-timeouts", _W, POWER + "#config", _short_timeouts),
    Trap("rates", _W, MAN + "#OPT_ResumeRate", _rates),
    Trap("return-to-service", _E, MAN + "#OPT_ReturnToService", _return_to_service),
    Trap("tree-width-corrupts", _E, NEWS + "/slurm-25.05.md", _tree),
    Trap("tree-width-hack", _W, MAN + "#OPT_TreeWidth", _tree_hack),
    Trap("suspend-exc-empty", _E, "https://github.com/Azure/cyclecloud-slurm/issues/197",
         _exc_nodes_empty),
    Trap("suspend-exc-count", _E, MAN + "#OPT_SuspendExcNodes", _exc_nodes_count),
    Trap("suspend-exc-down", _W, MAN + "#OPT_SuspendExcStates", _exc_states),
    Trap("power-save-interval", _W, MAN + "#OPT_power_save_interval", _intervals),
    Trap("memory-percent-last", _E, NEWS + "/slurm-25.05.md", _memory_percent),
    Trap("slurmd-timeout", _E, MAN + "#OPT_SlurmdTimeout", _slurmd_timeout),
    Trap("keep-power-save", _W, MAN + "#OPT_ReconfigFlags", _keep_settings),
)  # fmt: skip
