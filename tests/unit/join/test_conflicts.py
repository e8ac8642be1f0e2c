"""Conflicts with a site's configuration, each with its line."""

from __future__ import annotations

import pytest

from tests.unit.join.sites import PRICES, SLURM_CONF, join, site
from toolkit.join import include_line
from toolkit.join.conflicts import conflicts, lost_partitions
from toolkit.join.include_files import slurm_text
from toolkit.join.site import without


def found(text: str = SLURM_CONF, **more):
    return [str(item) for item in conflicts(join(), site(text, **more))]


def test_a_site_that_fits_has_none():
    assert found() == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("NodeName=cloud-[003-004],x CPUs=1", "the site has nodes cloud-003, cloud-004"),
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
