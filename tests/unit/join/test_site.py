"""The facts of a site, from its files and from slurmctld's answers."""

from __future__ import annotations

import pytest

from slurmplugins.slurm.controllers import active_host
from toolkit.join.errors import SiteCommandFailed, SiteUnreadable
from toolkit.join.site import ConfFile, Place, parse_config, read_site, site_facts, without

SLURM_CONF = """\
ClusterName=Racks
SlurmctldHost=ctl(10.0.0.1)
SlurmctldParameters=enable_configless
Include nodes-%c.conf
Include /srv/slurm/partitions.conf   # the storage team's
ResumeProgram=/site/resume
"""
FILES = {
    "/etc/slurm/slurm.conf": SLURM_CONF,
    "/etc/slurm/nodes-racks.conf": "NodeName=DEFAULT CPUs=4\nNodeName=rack[1-2] RealMemory=100\n",
    "/srv/slurm/partitions.conf": "PartitionName=main Nodes=rack[1-2] \\\n  Default=YES\n",
}
CONFIG = """\
Configuration data as of 2026-11-26T05:00:00
AccountingStorageEnforce = none
ResumeProgram           = /site/resume
SlurmctldHost[0]        = ctl(10.0.0.1)
SlurmctldHost[1]        = ctl2
SlurmctldPort           = 6820-6823
SuspendTime             = INFINITE

Slurmctld(primary) at ctl is UP
"""
PING = "Slurmctld(primary) at ctl is DOWN\nSlurmctld(backup) at ctl2 is UP\n"


class Site:
    """A controller that has these files, and Slurm 24.11."""

    def __init__(self, files=FILES, version="slurm-wlm 24.11.5") -> None:
        self.files, self.version = files, version

    def run(self, argv, *, timeout=60, stdin=""):
        del timeout, stdin
        if argv[0] == "/usr/bin/cat":
            if argv[2] not in self.files:
                raise SiteCommandFailed(f"cat: {argv[2]}: No such file", returncode=1)
            return self.files[argv[2]]
        if argv[0] == "/usr/bin/test":
            raise SiteCommandFailed("no such file", returncode=1)
        return {"--version": self.version, "show": CONFIG, "ping": PING}[argv[1]]


def test_it_reads_slurm_conf_and_what_it_includes():
    facts = read_site(Site())
    assert [file.path for file in facts.files] == list(FILES)
    assert facts.cluster_name == "Racks"
    assert facts.configless
    assert facts.version == "24.11.5"
    assert facts.running["resumeprogram"] == "/site/resume"


def test_each_line_has_its_place():
    facts = read_site(Site())
    assert facts.settings["resumeprogram"].place == Place("/etc/slurm/slurm.conf", 6)
    (nodes,) = facts.nodes
    assert nodes.names == ("rack1", "rack2")
    assert nodes.values == {"cpus": "4", "realmemory": "100"}
    assert str(nodes.place) == "/etc/slurm/nodes-racks.conf:2"
    (partition,) = facts.partitions
    assert (partition.name, partition.values["default"]) == ("main", "YES")


def test_a_setting_counts_in_the_order_in_which_slurmctld_reads_files():
    # It reads a file where it is included, so a later line of slurm.conf replaces it.
    files = {
        "/etc/slurm/slurm.conf": "ResumeProgram=/first\nInclude old.conf\nResumeProgram=/last\n",
        "/etc/slurm/old.conf": "ResumeProgram=/old\nInclude deep.conf\nSuspendProgram=/old\n",
        "/etc/slurm/deep.conf": "SuspendProgram=/deep\nResumeFailProgram=/deep\n",
    }
    facts = read_site(Site(files))
    values = [facts.value(name) for name in ("ResumeProgram", "SuspendProgram")]
    assert (values, facts.value("ResumeFailProgram")) == (["/last", "/old"], "/deep")
    assert str(facts.settings["resumeprogram"].place) == "/etc/slurm/slurm.conf:3"
    assert without(facts, "old.conf").value("ResumeProgram") == "/last"


def test_the_controllers_answer_as_slurmctld_was_pinged():
    assert active_host(read_site(Site()).controllers) == "ctl2"
    assert active_host(site_facts([ConfFile("/x/slurm.conf", "")]).controllers) == ""


def test_the_controllers_and_their_port_are_those_of_the_running_slurmctld():
    facts = read_site(Site())
    assert facts.hosts == (("ctl", "10.0.0.1"), ("ctl2", ""))
    assert facts.port == 6820
    assert facts.slurm_user == "root"


def test_a_missing_include_is_the_sites_error():
    files = {key: text for key, text in FILES.items() if "nodes" not in key}
    with pytest.raises(SiteCommandFailed, match=r"nodes-racks\.conf"):
        read_site(Site(files))


def test_a_slurm_conf_elsewhere_is_a_setting_of_ours():
    with pytest.raises(SiteCommandFailed, match=r"No such file") as caught:
        read_site(Site({"/etc/slurm-llnl/slurm.conf": SLURM_CONF}))
    assert "site.slurm_conf" in caught.value.next_step
    missing = Site({"/etc/slurm/slurm.conf": "Include gone.conf\n"})
    with pytest.raises(SiteCommandFailed, match=r"gone\.conf") as caught:
        read_site(missing)
    assert not caught.value.next_step


def test_a_file_that_includes_itself_ends_the_reading():
    with pytest.raises(SiteUnreadable, match="more than 200"):
        read_site(Site({"/etc/slurm/slurm.conf": "Include slurm.conf\n"}))


def test_a_scontrol_without_a_version_is_refused():
    with pytest.raises(SiteUnreadable, match="names no version"):
        read_site(Site(version="command not found"))


def test_show_configs_values_may_be_empty_or_have_an_equals_sign():
    rows = parse_config("AuthInfo                = cred_expire=30\nEpilog                  = \n")
    assert rows == {"authinfo": "cred_expire=30", "epilog": ""}
