"""The rules for slurm.conf.

Each known trap is found. Our rendered files have no finding in any version.
"""

import pytest

from tests.unit.render.render_samples import PRICES, a_config
from toolkit import assets
from toolkit.lint.slurm_conf import check
from toolkit.lint.slurm_conf.parser import parse
from toolkit.render.context import slurm_context
from toolkit.render.slurm import slurm_files
from toolkit.render.versions import SlurmVersion

VERSIONS = ("23.11", "24.05", "24.11", "25.05", "25.11", "26.05")


def rendered(version="24.11", profile="aws"):
    config = a_config(
        profile=profile, slurm={"version": version, "suspend_time": 30, "resume_timeout": 180}
    )
    context = slurm_context(config, PRICES)
    return slurm_files(context, assets.directory("templates"))["slurm.conf"]


def slugs_of(text, version="24.11"):
    return {item.slug for item in check.check_slurm_conf(parse(text), SlurmVersion.parse(version))}


@pytest.mark.parametrize("profile", ["local", "aws"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_rendered_slurm_conf_has_no_findings_but_of_slurm_itself(version, profile):
    known = {"unpatched-slurm"} if version in {"23.11", "24.05"} else set()
    assert slugs_of(rendered(version, profile), version) == known


def edited(text, *lines, without=()):
    """Return the file without these settings and with these lines."""
    kept_lines = [line for line in text.splitlines() if line.partition("=")[0] not in without]
    return "\n".join([*kept_lines, *lines])


# slug: settings to take out of the good file, lines to add, version
CASES = {
    "no-power-programs": (["ResumeProgram"], [], "24.11"),
    "no-resume-fail-program": (["ResumeFailProgram"], [], "24.11"),
    "idle-on-suspend": ([], ["SlurmctldParameters=enable_configless"], "24.11"),
    "configless": ([], ["SlurmctldParameters=idle_on_node_suspend"], "24.11"),
    "never-suspended": ([], ["PartitionName=more Nodes=gpu-[001-002] DefCpuPerGPU=4"], "24.11"),
    "suspends-others": ([], ["SuspendTime=300", "NodeName=rack[01-09]"], "24.11"),
    "short-timeouts": ([], ["ResumeTimeout=60"], "24.11"),
    "rates": ([], ["ResumeRate=100"], "24.11"),
    "return-to-service": (["ReturnToService"], [], "24.11"),
    "tree-width-corrupts": ([], ["TreeWidth=65533"], "24.11"),
    "tree-width-hack": ([], ["TreeWidth=65533"], "26.05"),
    "suspend-exc-empty": ([], ["SuspendExcNodes="], "24.11"),
    "suspend-exc-count": ([], ["SuspendExcNodes=gpu-[001-004]:2"], "23.11"),
    "suspend-exc-down": ([], ["SuspendExcStates=DOWN,RESERVED"], "24.11"),
    "power-save-interval": (
        [],
        ["SlurmctldParameters=enable_configless,idle_on_node_suspend,power_save_interval=60"],
        "24.11",
    ),
    "memory-percent-last": (
        [],
        ["SlurmctldParameters=node_reg_mem_percent=90,enable_configless,idle_on_node_suspend"],
        "25.05",
    ),
    "slurmd-timeout": ([], ["SlurmdTimeout=0"], "24.11"),
    "keep-power-save": ([], ["ReconfigFlags=KeepPowerSaveSettings"], "24.11"),
    "option-gone": ([], ["PrivateData=cloud"], "24.11"),
    "spelling": (
        [],
        ["SlurmctldParameters=enable_configless,idle_on_node_suspend,idle_on_node_suspends"],
        "24.11",
    ),
    "job-requeue": ([], ["JobRequeue=0"], "24.11"),
    "requeue-exit": ([], ["RequeueExitHold=80-90"], "24.11"),
    "requeue-bugs": ([], ["RequeueExit=1-85"], "24.11"),
    "max-batch-requeue": (["MaxBatchRequeue"], [], "24.11"),
    "kill-wait": ([], ["KillWait=180"], "24.11"),
    "over-time-limit": ([], ["OverTimeLimit=UNLIMITED"], "24.11"),
    "requeue-delay": (["AuthInfo"], [], "24.11"),
    "expedited-requeue": ([], [("SlurmctldParameters=enable_configless,idle_on_node_suspend,"
                               "enable_expedited_requeue")], "25.11"),
    "prolog-hold": ([], ["Prolog=/x", "SchedulerParameters=sbatch_wait_nodes,salloc_wait_nodes"],
                    "24.11"),
    "prolog-flags": (["JobContainerType"], ["Prolog=/x", "PrologFlags=Serial"], "24.11"),
    "wait-nodes": ([], ["SchedulerParameters=salloc_wait_nodes,nohold_on_prolog_fail"], "24.11"),
    "unkillable-step": ([], ["MessageTimeout=60"], "24.11"),
    "batch-start": (["BatchStartTimeout"], [], "24.11"),
    "preempt-mode": ([], ["PreemptMode=SUSPEND,GANG"], "24.11"),
    "preempt-signal": (["PreemptParameters"], [], "24.11"),
    "preempt-grace": (
        ["PreemptType"],
        [
            "PreemptType=preempt/partition_prio",
            "PartitionName=high Nodes=gpu-001 SuspendTime=30 PriorityTier=10 DefCpuPerGPU=4",
        ],
        "24.11",
    ),
    "gpu-share": ([], ["PartitionName=more Nodes=gpu-[001-002] SuspendTime=30"], "24.11"),
    "memory-lock": (["PropagateResourceLimitsExcept"], [], "24.11"),
    "metrics-private": ([], ["MetricsType=metrics/openmetrics", "PrivateData=usage"], "25.11"),
    "shared-tmp": (["NamespaceType"], [], "25.11"),
    "contain-missing": ([], ["PrologFlags=Alloc"], "23.11"),
    "private-queue": ([], ["PrivateData=jobs,usage"], "24.11"),
    "unpatched-slurm": ([], [], "23.11"),
    "cores-unknown": ([], ["NodeName=big-[1-2] CPUs=192 Gres=gpu:h100:8"], "24.11"),
}  # fmt: skip
COMPANIONS = {
    "tree-width-corrupts": ["tree-width-hack"],
    "prolog-flags": ["shared-tmp"],
    "suspend-exc-count": ["unpatched-slurm"],
    "contain-missing": ["unpatched-slurm"],
}
"""What a case can't do without."""


@pytest.mark.parametrize("slug", CASES)
def test_each_rule_finds_its_case_and_nothing_else(slug):
    without, lines, version = CASES[slug]
    slugs = slugs_of(edited(rendered(version), *lines, without=without), version)
    assert slug in slugs
    allowed = {slug, *COMPANIONS.get(slug, ())}
    assert slugs <= allowed, "a trap that brings another along says too much"


def test_every_rule_has_a_case_and_its_own_slug():
    slugs = [rule.slug for rule in (*check.ALWAYS, *check.WITH_CLOUD_NODES)]
    assert sorted(slugs) == sorted(CASES)


def test_a_finding_has_a_line_a_fix_and_a_source():
    text = edited(rendered(), "TreeWidth=65533")
    (first, *_) = check.check_slurm_conf(parse(text), SlurmVersion.parse("24.11"))
    assert first.line == len(text.splitlines())
    assert first.fix == "remove TreeWidth"
    assert first.source.startswith("https://")
    assert first.severity == "error"


def test_a_rule_does_not_apply_to_versions_without_the_bug():
    good = edited(rendered("25.11"), "SuspendExcNodes=gpu-[001-004]:2")
    assert slugs_of(good, "25.11") == set()


LARGE = "NodeName=big-[1-2] CPUs=192 Gres=gpu:1g.5gb:8(S:0-1),nvme:4"


def test_the_gpu_share_finding_names_the_nodes_with_unused_cpus():
    """Compute the CPUs of each GPU from the node with the fewest."""
    text = f"{LARGE}\nNodeName=small CPUs=4 Gres=gpu:1\nPartitionName=all Nodes=ALL DefCpuPerGPU=4"
    (finding,) = [
        item
        for item in check.check_slurm_conf(parse(text), SlurmVersion(24, 11))
        if item.slug == "gpu-share"
    ]
    assert finding.message == "in all, a job with all GPUs of big-[1-2] has 32 of 192 CPUs"


@pytest.mark.parametrize(
    "lines",
    [
        "PartitionName=all Nodes=big-1 DefCpuPerGPU=22",
        "JobDefaults=DefCpuPerGPU=24,DefMemPerGPU=1000\nPartitionName=all Nodes=big-1",
        "PartitionName=all Nodes=big-1 OverSubscribe=EXCLUSIVE",
        "PartitionName=all Nodes=rack-1",
    ],
)
def test_nodes_whose_cpus_follow_their_gpus_have_no_finding(lines):
    assert "gpu-share" not in slugs_of(f"{LARGE}\nNodeName=rack-1 CPUs=8\n{lines}")


def test_power_save_rules_do_not_apply_without_cloud_nodes():
    text = "NodeName=rack[01-09] CPUs=4\nPartitionName=all Nodes=ALL\n"
    slugs = slugs_of(text)
    assert not slugs & {rule.slug for rule in check.WITH_CLOUD_NODES}


def test_partition_defaults_and_nodes_all_are_parsed():
    text = edited(
        rendered(),
        "PartitionName=DEFAULT SuspendTime=60 DefCpuPerGPU=4",
        "PartitionName=more Nodes=ALL",
    )
    assert slugs_of(text) == set()


def test_comments_continuations_case_and_repeats_are_parsed_as_slurm_does():
    conf = parse(
        "# KillWait=1\nkillwait=30 # half a minute\nKILLWAIT=60\n"
        "NodeName=gpu-001 \\\n  State=CLOUD CPUs=4\ninclude other.conf\n\x00junk\n"
    )
    assert conf.number("KillWait", 0) == 60
    assert conf.settings["killwait"].line == 3
    assert (conf.cloud_nodes[0].name, conf.cloud_nodes[0].line) == ("gpu-001", 4)
    assert conf.includes[0].name == "other.conf"


def test_an_unknown_parameter_has_no_finding():
    good = "SlurmctldParameters=enable_configless,idle_on_node_suspend,new_in_2031"
    assert slugs_of(edited(rendered(), good)) == set()


def test_quotation_marks_and_blanks_beside_the_equals_sign_are_no_part_of_a_value():
    text = """\
ResumeProgram = "/site/resume now"
SuspendProgram=""
NodeName = "rack[1-2]" CPUs= 4 Gres ="gpu:2" Feature=a,b
PartitionName= main Nodes =rack[1-2] TRESBillingWeights=CPU=1.0,GRES/gpu=2
"""
    conf = parse(text)
    assert {item.name: item.value for item in conf.settings.values()} == {
        "ResumeProgram": "/site/resume now",
        "SuspendProgram": "",
    }
    (nodes,), (partition,) = conf.nodes, conf.partitions
    assert (nodes.name, nodes.values) == (
        "rack[1-2]",
        {"cpus": "4", "gres": "gpu:2", "feature": "a,b"},
    )
    weights = "CPU=1.0,GRES/gpu=2"
    assert (partition.name, partition.values) == (
        "main",
        {"nodes": "rack[1-2]", "tresbillingweights": weights},
    )
