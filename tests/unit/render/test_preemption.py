"""Partitions of different priority: preemption and its grace time."""

from tests.unit.render.render_samples import PRICES, a_config
from toolkit import assets
from toolkit.lint.slurm_conf import check
from toolkit.lint.slurm_conf.parser import parse
from toolkit.render.context import slurm_context
from toolkit.render.slurm import slurm_files
from toolkit.render.versions import SlurmVersion


def rendered(**partitions):
    config = a_config(
        partitions={
            name: {"pools": ["gpu"], "default": name == "spot", **changes}
            for name, changes in partitions.items()
        },
    )
    text = slurm_files(slurm_context(config, PRICES), assets.directory("templates"))["slurm.conf"]
    return parse(text)


def test_partitions_of_equal_priority_use_preemption_by_qos():
    conf = rendered(spot={}, urgent={})
    assert conf.get("PreemptType").value == "preempt/qos"
    assert [part.get("GraceTime") for part in conf.partitions] == ["", ""]


def test_a_partition_of_higher_priority_preempts_lower_ones_after_their_grace_time():
    conf = rendered(spot={}, team={"grace_seconds": 60, "priority": 5}, urgent={"priority": 10})
    assert conf.get("PreemptType").value == "preempt/partition_prio"
    assert conf.get("PreemptMode").value == "REQUEUE"
    assert conf.words("PreemptParameters") == ("send_user_signal",)
    tiers = [(p.name, p.get("PriorityTier"), p.get("GraceTime")) for p in conf.partitions]
    assert tiers == [("spot", "", "120"), ("team", "5", "60"), ("urgent", "10", "")]
    assert check.check_slurm_conf(conf, SlurmVersion.parse("24.11")) == ()


def test_a_grace_time_of_zero_is_a_finding():
    conf = rendered(spot={"grace_seconds": 0}, urgent={"priority": 10})
    assert {item.slug for item in check.check_slurm_conf(conf, SlurmVersion.parse("24.11"))} == {
        "preempt-grace"
    }
