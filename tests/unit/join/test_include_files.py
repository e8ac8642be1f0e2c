"""Our files beside the site's slurm.conf."""

from __future__ import annotations

from tests.unit.join.sites import PRICES, SLURM_CONF, join, site
from toolkit.join.include_files import global_settings, gres_text, site_programs, slurm_text
from toolkit.lint.slurm_conf.parser import parse

GPUS = "shape: {cpus: 8, memory_gib: 32, gpus: 1, gpu: l4}"


def test_slurm_conf_gets_nodes_partitions_and_our_programs():
    conf = parse(slurm_text(join(), site(), PRICES))
    (nodes,) = conf.nodes
    assert (nodes.name, nodes.get("State")) == ("cloud-[001-016]", "CLOUD")
    (partition,) = conf.partitions
    assert (partition.name, partition.get("Default")) == ("burst", "NO")
    assert (partition.get("SuspendTime"), partition.get("ResumeTimeout")) == ("600", "900")
    assert conf.get("ResumeProgram").value == "/opt/slurm-toolkit/bin/slurm-resume"


def test_what_the_site_sets_for_all_its_nodes_stays():
    """State nothing of slurmctld's that would change the racks."""
    conf = parse(slurm_text(join(), site(), PRICES))
    assert set(conf.settings) == {"resumeprogram", "suspendprogram", "resumefailprogram"}
    assert "TRESBillingWeights" not in slurm_text(join(), site(), PRICES)


def test_the_sites_own_programs_are_known_to_ours():
    assert site_programs(site()) == {"resume": "/site/resume", "suspend": "/site/suspend"}
    assert [item.before for item in global_settings(join(), site())] == [
        "/site/resume",
        "/site/suspend",
        "",
    ]


def test_lists_of_the_site_keep_their_words():
    settings = global_settings(join("count: 16", "count: 16\n    static: 2"), site())
    assert (settings[-1].name, settings[-1].value) == ("SuspendExcNodes", "rack1,cloud-[001-002]")
    gpus = join("shape: {cpus: 8, memory_gib: 32}", GPUS)
    with_licences = site(f"{SLURM_CONF}GresTypes=shard\n")
    assert global_settings(gpus, with_licences)[-1].value == "shard,gpu"
    assert (
        global_settings(gpus, site(f"{SLURM_CONF}GresTypes=gpu\n"))[-1].name == "ResumeFailProgram"
    )


def test_gres_conf_is_only_for_gpus():
    assert not gres_text(join(), PRICES)
    text = gres_text(join("shape: {cpus: 8, memory_gib: 32}", GPUS), PRICES)
    assert "NodeName=cloud-[001-016] Name=gpu Type=l4 File=/dev/nvidia0" in text
