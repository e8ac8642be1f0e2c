"""Conflicts with a site's configuration, each with its line."""

from __future__ import annotations

import re

import pytest

from tests.unit.join.sites import EXAMPLE, PRICES, SLURM_CONF, join, site
from toolkit.config import parse
from toolkit.join import include_line
from toolkit.join.conflicts import burst_rules, conflicts, lost_partitions
from toolkit.join.include_files import slurm_text
from toolkit.join.site import Place, without

RULES = """
burst:
  mian: {partition: burst, accounts: {physics: {usd_per_month: 5}}}
"""


def found(text: str = SLURM_CONF, **more):
    return [str(item) for item in conflicts(join(), site(text, **more))]


def test_a_site_that_fits_has_none():
    assert found() == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("NodeName=cloud-[003-004],x CPUs=1", "the site has nodes cloud-003, cloud-004"),
        ("NodeName=cloud-0[0-1][1-2],x CPUs=1", "the site has nodes cloud-001, cloud-002, cloud-0"),
        ("NodeName=cloud-[3-99] CPUs=1", "cloud-6, cloud-7 and 9 more: pool cloud has cloud-003"),
        ("PartitionName=Burst Nodes=rack1", "the site has a partition Burst"),
        ("PartitionName=all Nodes=ALL", "Nodes=ALL, which takes the cloud nodes too"),
        ("NodeName=DEFAULT Port=7003 CPUs=4", "states port, which cloud nodes would take too"),
        ("AuthType=auth/none", "AuthType=auth/none"),
        ("SuspendRate=-1", "switches power saving off"),
        ("SlurmctldParameters=enable_configless,cloud_dns", "has cloud_dns"),
        ("SlurmctldParameters=idle_on_node_suspend", "lacks enable_configless"),
    ],
)
def test_a_setting_that_fights_is_named_with_its_line(line, message):
    (text,) = found(f"{SLURM_CONF}{line}\n")
    assert text.startswith("/etc/slurm/slurm.conf:12: ")
    assert message in text


@pytest.mark.parametrize("lacking", ["SuspendProgram", "ResumeProgram"])
@pytest.mark.parametrize(("times", "line"), [("600", 7), ("INFINITE", None), ("-1", None)])
def test_a_join_does_not_switch_on_the_power_saving_of_racks(lacking, times, line):
    text = re.sub(f"{lacking}=.*\n", "", SLURM_CONF).replace("=600", f"={times}")
    texts = found(text)
    assert len(texts) == (line is not None)
    for message in texts:
        assert message.startswith(f"/etc/slurm/slurm.conf:{line}: SuspendTime=600 has no effect")
    assert len(found(f"{text}{lacking}=bin/relative\n")) == len(texts)
    (of_partition,) = found(text.replace(f"={times}", "=-1") + "PartitionName=b SuspendTime=60\n")
    assert of_partition.startswith("/etc/slurm/slurm.conf:11: SuspendTime=60 has no effect")


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        ("queue1-dy-compute", "nodes queue1-dy-compute-1, queue1-dy-compute-2: pool queue1-dy-co"),
        ("queue2-st-gpu", "clustermgtd would power down nodes of pool queue2-st-gpu"),
    ],
)
def test_names_of_a_parallelcluster_at_the_site_are_refused_with_its_line(pool, message):
    lines = "NodeName=queue1-dy-compute-[1-2] State=CLOUD\nNodeName=queue1-st-compute-1\n"
    own = parse(EXAMPLE.replace("cloud:", f"{pool}:").replace("[cloud]", f"[{pool}]"))
    texts = [str(item) for item in conflicts(own, site(f"{SLURM_CONF}{lines}"))]
    (text,) = (text for text in texts if message in text)
    assert text.startswith("/etc/slurm/slurm.conf:12: the site has nodes ")


def test_a_cloud_of_such_names_joins_a_site_without_a_parallelcluster():
    own = parse(EXAMPLE.replace("cloud:", "q-st-gpu:").replace("[cloud]", "[q-st-gpu]"))
    assert conflicts(own, site()) == ()


def test_a_burst_rule_of_a_partition_that_the_site_lacks_is_refused_with_its_line():
    own = join("\npartitions:", f"{RULES}\npartitions:")
    (text,) = map(str, burst_rules(own, site(), {"mian": Place("cluster.yaml", 7)}))
    assert text.startswith("cluster.yaml:7: burst.mian: the site has no partition mian: ")
    assert text.endswith("; did you mean 'main'?")
    assert (
        list(
            burst_rules(
                join("\npartitions:", RULES.replace("mian", "main") + "\npartitions:"), site(), {}
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("old", "place", "line"),
    [
        ("SlurmctldParameters=enable_configless\n", 10, "enable_configless"),
        ("enable_configless", 5, "enable_configless"),
        ("enable_configless", 5, "idle_on_node_suspend,enable_configless"),
    ],
)
def test_a_site_that_is_not_configless_is_told_the_whole_line(old, place, line):
    new = line.rpartition(",")[0] if old == "enable_configless" else ""
    (text,) = found(SLURM_CONF.replace(old, new))
    assert text.startswith(f"/etc/slurm/slurm.conf:{place}: SlurmctldParameters lacks")
    assert f"write `SlurmctldParameters={line}` and restart slurmctld" in text


def test_the_line_may_be_in_an_included_file():
    (text,) = found(racks="# theirs\nNodeName=cloud-001\n")
    assert text.startswith("/etc/slurm/racks.conf:2: ")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("23.02.7", "upgrade it to 23.11"),
        ("git", "no known version"),
    ],
)
def test_a_version_that_cannot_be_joined_is_named(version, message):
    assert any(message in text for text in found(version=version))


def test_nodes_newer_than_slurmctld_are_refused():
    later = join('version: "23.11"', 'version: "24.05"\n  packages: locked')
    (conflict,) = conflicts(later, site(version="23.11.10"))
    assert conflict.message == "slurm.version 24.05 is later than the site's 23.11.10"
    assert conflict.mend == "set slurm.version to 23.11 or earlier, of two series before at most"


def test_a_file_that_could_not_be_written_back_is_refused_with_its_line():
    latin_1 = "# für alle\n".encode("latin-1").decode(errors="replace")
    (text,) = found(f"{SLURM_CONF}{latin_1}# more\n{latin_1}")
    assert text.startswith("/etc/slurm/slurm.conf:12: the line has bytes that are not UTF-8")
    by_hand = join("  networks:", "  include: by-hand\n  networks:")
    assert conflicts(by_hand, site(f"{SLURM_CONF}{latin_1}")) == ()


def test_our_own_file_is_no_conflict_with_itself():
    text = include_line.added(SLURM_CONF, "burst", "toolkit-burst.conf")
    joined = site(text, **{"toolkit-burst": slurm_text(join(), site(), PRICES)})
    assert conflicts(join(), without(joined, "toolkit-burst.conf")) == ()


def test_another_join_is_refused_with_its_line():
    text = include_line.added(SLURM_CONF, "east", "toolkit-east.conf")
    other = site(text, **{"toolkit-east": "# Cloud nodes of east, by toolkit join.\n"})
    (conflict,) = conflicts(join(), other)
    assert str(conflict).startswith("/etc/slurm/slurm.conf:13: /etc/slurm/toolkit-east.conf is of")


def test_a_line_that_a_person_put_too_high_is_refused():
    (text,) = found("Include toolkit-burst.conf\n" + SLURM_CONF.replace("Suspend", "#Suspend"))
    assert text.startswith("/etc/slurm/slurm.conf:7: ResumeProgram is set after our file")


def test_a_partition_that_jobs_may_name_does_not_vanish_by_a_changed_file():
    text = slurm_text(join(), site(), PRICES)
    assert list(lost_partitions(join(), text)) == []
    assert list(lost_partitions(join(), None)) == []
    renamed = join("  burst: {pools", "  cloud: {pools")
    (conflict,) = lost_partitions(renamed, text)
    assert conflict.message.startswith("partition burst of this join is in cluster.yaml no more")
