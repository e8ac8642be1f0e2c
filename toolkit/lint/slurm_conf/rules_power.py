"""Rules for nodes that come and go: power saving, registration, failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.rule import MAN, NEWS, POWER, ConfRule, Hit, at_setting, missing_word
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
            yield Hit(name, "the file has CLOUD nodes, and no program for them", f"set {name}")


def _no_fail_program(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if conf.get("ResumeFailProgram") is None:
        text = "an instance that registers after ResumeTimeout keeps running, and costs money"
        yield Hit("ResumeFailProgram", text, "set it to a program that terminates the instance")


def _idle_on_suspend(conf: SlurmConf, _version: SlurmVersion) -> Iterable[Hit]:
    text = "nodes that are down or drained when they power down stay down or drained for ever"
    return missing_word(conf, "SlurmctldParameters", "idle_on_node_suspend", text)


def _configless(conf: SlurmConf, _version: SlurmVersion) -> Iterable[Hit]:
    text = "new instances get no slurm.conf: slurmd fetches it from slurmctld"
    return missing_word(conf, "SlurmctldParameters", "enable_configless", text)


def _never_suspended(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    """Find cloud nodes that are never powered down.

    A node's longest SuspendTime among its partitions counts, and infinite is the
    longest.
    """
    default_time = conf.get("SuspendTime")
    fallback = -1 if default_time is None or default_time.number is None else default_time.number
    ending_nodes: set[str] = set()
    partition_by_node: dict[str, Line] = {}
    for part in conf.partitions:
        partition_time = part.get("SuspendTime").lower()
        infinite = partition_time in {"infinite", "-1"} if partition_time else fallback == -1
        for node in conf.expand_hostlist(part.get("Nodes")):
            if infinite:
                partition_by_node.setdefault(node, part)
            else:
                ending_nodes.add(node)
    cloud = {name for line in conf.cloud_nodes for name in conf.expand_hostlist(line.name)}
    stuck_nodes = sorted(cloud & partition_by_node.keys())
    if stuck_nodes:
        node, part = stuck_nodes[0], partition_by_node[stuck_nodes[0]]
        overlap = ", although another of its partitions does" if node in ending_nodes else ""
        text = f"{node} and {len(stuck_nodes) - 1} more are never powered down:"
        text += f" partition {part.name} sets no SuspendTime{overlap}"
        yield Hit("SuspendTime", text, f"set SuspendTime on partition {part.name}", part.line)


def _suspends_others(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    other_nodes = [node for node in conf.nodes if node.get("state").upper() != "CLOUD"]
    if other_nodes and conf.number("SuspendTime", -1) > 0 and not conf.words("SuspendExcParts"):
        text = f"idle nodes that are no CLOUD nodes ({other_nodes[0].name}) are powered down too"
        fix = "SuspendTime=INFINITE, and a SuspendTime on each cloud partition"
        yield at_setting(conf, "SuspendTime", text, fix)


def _short_timeouts(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    resume = conf.number("ResumeTimeout", 60)
    if 0 <= resume < SHORTEST_RESUME:
        text = f"{resume} s is shorter than a launch and a boot: nodes fail while they still boot"
        fix = f"ResumeTimeout={SHORTEST_RESUME} at least; 900 for GPU types"
        yield at_setting(conf, "ResumeTimeout", text, fix)
    suspend = conf.number("SuspendTimeout", 30)
    if 0 <= suspend < SHORTEST_SUSPEND:
        text = "Slurm uses a node again while its old instance still terminates"
        fix = f"SuspendTimeout={SHORTEST_SUSPEND} at least; reconcile shortens it where it can"
        yield at_setting(conf, "SuspendTimeout", text, fix)


def _rates(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    for name, default in (("ResumeRate", 300), ("SuspendRate", 60)):
        rate = conf.number(name, default)
        if rate > 0:
            text = f"Slurm passes on at most {rate} nodes a minute, and splits large jobs"
            if name == "ResumeRate":
                text += "; a het job's components that it parts may idle until SuspendTime"
            fix = f"{name}=0: the toolkit itself keeps to EC2's rates"
            yield at_setting(conf, name, text, fix)


def _return_to_service(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    value = conf.number("ReturnToService", 0)
    if value != 2:  # noqa: PLR2004 - Slurm's number for it
        text = "a node that registers late or rebooted stays down (`Node unexpectedly rebooted`)"
        yield at_setting(conf, "ReturnToService", text, "ReturnToService=2")


def _tree(conf: SlurmConf, version: SlurmVersion) -> Iterator[Hit]:
    width = conf.number("TreeWidth", 16)
    if width > WIDEST_TREE and version <= SlurmVersion(25, 5):
        text = f"TreeWidth={width} can corrupt slurmctld's memory before 25.05.6"
        yield at_setting(conf, "TreeWidth", text, "remove TreeWidth")


def _tree_hack(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    width = conf.number("TreeWidth", 16)
    if width >= 1000:  # noqa: PLR2004 - far above any tree
        text = "CLOUD nodes needed this before Slurm 23.11; now it only disables the fan-out"
        yield at_setting(conf, "TreeWidth", text, "remove TreeWidth")


def _exc_nodes_empty(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    for name in ("SuspendExcNodes", "SuspendExcParts"):
        setting = conf.get(name)
        if setting is not None and not setting.value:
            text = "slurmctld does not start with an empty list"
            yield Hit(name, text, f"remove {name}", setting.line)


def _exc_nodes_count(conf: SlurmConf, version: SlurmVersion) -> Iterator[Hit]:
    setting = conf.get("SuspendExcNodes")
    if setting is not None and ":" in setting.value and version < SlurmVersion(24, 5):
        text = "before Slurm 24.05 `nodes:COUNT` also counts powered-down nodes, and keeps none up"
        yield Hit("SuspendExcNodes", text, "list the nodes without a count", setting.line)


def _exc_states(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if "DOWN" in {word.upper() for word in conf.words("SuspendExcStates")}:
        text = "down nodes keep their instances, which cost money until an admin looks"
        yield at_setting(conf, "SuspendExcStates", text, "remove DOWN")


def _intervals(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    for word in ("power_save_interval", "power_save_min_interval"):
        value = conf.parameter("SlurmctldParameters", word)
        if value is not None and value.isdecimal() and int(value) > LONGEST_INTERVAL:
            text = f"{word}={value}: a job waits up to {value} s until Slurm powers up its nodes"
            fix = f"remove {word}; the default is 10 s"
            yield at_setting(conf, "SlurmctldParameters", text, fix)


def _memory_percent(conf: SlurmConf, version: SlurmVersion) -> Iterator[Hit]:
    words = conf.words("SlurmctldParameters")
    positions = [
        number for number, word in enumerate(words) if word.startswith("node_reg_mem_percent")
    ]
    if positions and positions[0] != len(words) - 1 and version == SlurmVersion(25, 5):
        text = "Slurm 25.05.0 and .1 misread node_reg_mem_percent when another parameter follows"
        yield at_setting(conf, "SlurmctldParameters", text, "move node_reg_mem_percent to the end")


def _slurmd_timeout(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    seconds = conf.number("SlurmdTimeout", 300)
    if seconds == 0:
        text = "Slurm never marks a lost node down, and never requeues its job"
        yield at_setting(conf, "SlurmdTimeout", text, "SlurmdTimeout=120")


def _keep_settings(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if "keeppowersavesettings" in {word.lower() for word in conf.words("ReconfigFlags")}:
        text = "KeepPowerSaveSettings does not keep SuspendExcNodes over a restart of slurmctld"
        fix = "write the exceptions into slurm.conf"
        yield at_setting(conf, "ReconfigFlags", text, fix)


_E, _W = Severity.ERROR, Severity.WARNING
RULES: Final = (
    ConfRule("no-power-programs", _E, POWER, _no_programs),
    ConfRule("no-resume-fail-program", _W, MAN + "#OPT_ResumeFailProgram", _no_fail_program),
    ConfRule("idle-on-suspend", _E, MAN + "#OPT_idle_on_node_suspend", _idle_on_suspend),
    ConfRule("configless", _E, "https://slurm.schedmd.com/configless_slurm.html", _configless),
    ConfRule("never-suspended", _E, MAN + "#OPT_SuspendTime_2", _never_suspended),
    ConfRule("suspends-others", _E, MAN + "#OPT_SuspendTime", _suspends_others),
    ConfRule("short-timeouts", _W, POWER + "#config", _short_timeouts),
    ConfRule("rates", _W, MAN + "#OPT_ResumeRate", _rates),
    ConfRule("return-to-service", _E, MAN + "#OPT_ReturnToService", _return_to_service),
    ConfRule("tree-width-corrupts", _E, NEWS + "/slurm-25.05.md", _tree),
    ConfRule("tree-width-hack", _W, MAN + "#OPT_TreeWidth", _tree_hack),
    ConfRule("suspend-exc-empty", _E, "https://github.com/Azure/cyclecloud-slurm/issues/197",
         _exc_nodes_empty),
    ConfRule("suspend-exc-count", _E, MAN + "#OPT_SuspendExcNodes", _exc_nodes_count),
    ConfRule("suspend-exc-down", _W, MAN + "#OPT_SuspendExcStates", _exc_states),
    ConfRule("power-save-interval", _W, MAN + "#OPT_power_save_interval", _intervals),
    ConfRule("memory-percent-last", _E, NEWS + "/slurm-25.05.md", _memory_percent),
    ConfRule("slurmd-timeout", _E, MAN + "#OPT_SlurmdTimeout", _slurmd_timeout),
    ConfRule("keep-power-save", _W, MAN + "#OPT_ReconfigFlags", _keep_settings),
)  # fmt: skip
