"""Each check of a site, with a site that fits and one that differs in one thing.

The site that fits is a real one: tests/golden/join has the answers of its Slurm.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from slurmplugins.slurm.controllers import Controller
from tests.golden.join.sides import FITTING
from tests.unit.join.preflight.samples import (
    captured,
    fit,
    of_version,
    with_file,
    with_lines,
    with_more,
)
from toolkit.join.preflight import SiteCheck, site_checks
from toolkit.join.preflight.checks import RULES
from toolkit.join.preflight.facts import (
    Account,
    Clock,
    Connection,
    License,
    PathMtu,
    PreflightFacts,
    Rack,
    Route,
    SlurmReservation,
)
from toolkit.join.preflight.power import LINTED
from toolkit.join.preflight.racks import FILES
from toolkit.lint.finding import Severity
from toolkit.slurm_nodes import NodeInfo

FIT = captured("fit")
TREE = {"TopologyPlugin": "topology/tree"}
TREE_YAML = """\
- topology: racks
  cluster_default: true
  tree:
    switches:
    - switch: top
      nodes: rack[01-02]
"""
ADA = Account("ada", 2001, 2001, "/shared/home/ada")
NODE = NodeInfo("rack01", frozenset({"IDLE"}), 2, 3000, 0, (), "", "", "10.42.1.9", "")
TWO = (Controller("rack-head", True), Controller("rack-spare", True))
NAMES = (
    "MaxNodeCount", "TreeWidth", "JobRequeue", "SlurmUser", "SlurmctldHost", "SlurmctldPort",
    "SrunPortRange", "SuspendExcNodes", "TaskPlugin", "PluginDir", "Prolog",
)  # fmt: skip
PLUGSTACK = "# quotas\nrequired /usr/lib/slurm/quota.so limit=1T\n"


def users(*accounts):
    return replace(FIT, job_users=accounts)


def route(network, *, direct):
    return replace(FIT, routes=(Route(IPv4Network(network), "eth0", direct),))


def measured(outcome, *seconds, side="site"):
    return replace(FIT, connections=(Connection(side, "10.42.0.9", 22, outcome, seconds),))


def mtu(size, *, told):
    return replace(FIT, path_mtus=(PathMtu("site", "10.42.0.9", size, told),))


def database(version):
    return replace(FIT, slurmdbd_version=version)


CASES = [
    ("slurm-unsupported", of_version("22.05.9")),
    ("slurm-unsupported", of_version("")),
    ("node-newer", of_version("24.05.3")),
    ("node-too-old", of_version("26.05.1"), {"slurm_version": "24.05"}),
    ("slurmdbd-older", database("24.05.4")),
    ("node-name-taken", with_more("NodeName=gpu-[002-003] State=FUTURE")),
    ("node-name-taken", replace(FIT, nodes=(replace(NODE, name="cpu-001", address=""),))),
    ("partition-name-taken", with_more("PartitionName=Cloud Nodes=rack01")),
    ("partition-of-all-nodes", with_more("PartitionName=debug Nodes=ALL")),
    ("reservation-of-all-nodes",
     replace(FIT, reservations=(SlurmReservation("m", frozenset({"MAINT", "ALL_NODES"})),))),
    ("default-line", with_more("PartitionName=DEFAULT MaxTime=60")),
    ("topology-missing", with_file("topology.conf", "SwitchName=s Nodes=rack[01-02]", fit(**TREE))),
    ("topology-missing", fit(**TREE)),
    ("topology-missing", with_file("topology.yaml", TREE_YAML)),
    ("node-table", fit(MaxNodeCount="7")),
    ("suspend-exceptions", fit(SuspendExcParts="batch,cloud")),
    ("suspend-exceptions", fit(SuspendExcNodes="rack01,gpu-[001-002]:1")),
    ("idle-on-suspend", fit(SlurmctldParameters="enable_configless")),
    ("cloud-dns", fit(SlurmctldParameters="enable_configless,idle_on_node_suspend,cloud_dns")),
    ("cloud-reg-addrs", fit(SlurmctldParameters="cloud_reg_addrs,enable_configless")),
    ("fan-out", fit(TopologyParam="", TreeWidth="4")),
    ("auth-type", fit(AuthType="auth/none")),
    ("tls", fit(TLSType="tls/s2n")),
    ("plugin-missing", fit(SwitchType="switch/hpe_slingshot")),
    ("plugin-missing", fit(MpiDefault="pmix_v9")),
    ("plugin-dir", fit(PluginDir="/opt/slurm/lib/slurm")),
    ("spank-plugin", with_file("plugstack.conf", PLUGSTACK)),
    ("program-missing", fit(Epilog="/usr/local/sbin/clean")),
    ("configless", fit(SlurmctldParameters="idle_on_node_suspend")),
    ("cgroup-plugin", with_file("cgroup.conf", "CgroupPlugin=cgroup/v1")),
    ("cgroup-plugin", with_file("cgroup.conf", "CgroupPlugin=disabled")),
    ("proctrack", fit(ProctrackType="proctrack/pgid")),
    ("task-plugin", fit(TaskPlugin="task/affinity")),
    ("subnet-overlap", route("10.42.0.0/16", direct=True)),
    ("subnet-overlap", replace(FIT, nodes=(NODE,))),
    ("no-route", route("0.0.0.0/0", direct=False)),
    ("controller-address", fit(SlurmctldHost="rack-head")),
    ("controller-address", fit(SlurmctldHost="rack-head(127.0.1.1)")),
    ("controller-address", fit(SlurmctldHost="rack-head(10.42.3.4)")),
    ("node-name-elsewhere", replace(FIT, addresses={"cpu-001": ("10.10.0.77",)})),
    ("controller-silent", replace(FIT, listening_ports=frozenset({22, 6818}))),
    ("srun-ports", fit(SrunPortRange="")),
    ("no-ipv4", fit(CommunicationParameters="EnableIPv6,DisableIPv4")),
    ("database-host", fit(AccountingStorageHost="localhost")),
    ("clock-free", replace(FIT, clock=Clock(synchronized=False))),
    ("clock-off", replace(FIT, clock=Clock(synchronized=True, offset_seconds=6.5))),
    ("unreached", measured("silent")),
    ("unreached", measured("no-address", side="cloud")),
    ("slow-path", measured("open", 0.02, 0.15, 0.16)),
    ("packets-lost", mtu(1400, told=False)),
    ("small-packets", mtu(1400, told=True)),
    ("slurm-uid", fit(SlurmUser="slurm(450)")),
    ("slurm-uid-low", fit(SlurmUser="slurm(450)"), {"slurm_uid": None}),
    ("include-not-sent", with_more("Include /etc/slurm/more.conf")),
    ("uid-of-system", users(ADA, Account("render", 451, 451, "/shared/home/render"))),
    ("uid-differs", replace(FIT, accounts={"ada": replace(ADA, uid=2050)}, job_users=())),
    ("uid-differs", replace(FIT, accounts={"eve": Account("eve", 2001, 2001, "")}, job_users=())),
    ("user-missing", users(ADA, Account("eve", 2050, 2050, "/shared/home/eve"))),
    ("user-nameless", users(Account("", 2077, 2077, ""))),
    ("gid-of-system", users(replace(ADA, gid=100))),
    ("groups-not-sent", fit(LaunchParameters="disable_send_gids")),
    ("home-missing", users(replace(ADA, home="/home/ada"))),
    ("state-not-shared", replace(FIT, site=replace(FIT.site, controllers=TWO))),
    ("gres-types", fit(GresTypes="nic")),
    ("gres-autodetect", with_file("gres.conf", "# racks\nAutoDetect=nvml\n")),
    ("gpu-tres", fit(AccountingStorageTRES="cpu,mem")),
    ("select-type", fit(SelectType="select/linear")),
    ("select-memory", fit(SelectTypeParameters="CR_Core")),
    ("no-accounting", fit(AccountingStorageType="(null)")),
    ("no-enforcement", fit(AccountingStorageEnforce="associations")),
    ("part-limits", fit(EnforcePartLimits="ALL")),
    ("job-requeue", fit(JobRequeue="0")),
    ("requeue-exit", fit(RequeueExit="")),
    ("requeue-exit", fit(RequeueExit="90-95,12")),
    ("requeue-exit", fit(RequeueExitHold="80-89")),
    ("rack-boto3", replace(FIT, racks=(Rack("rack01", has_boto3=False),))),
    ("rack-files", replace(FIT, racks=(Rack("rack01", has_boto3=True, missing=FILES),))),
    ("return-to-service", fit(ReturnToService="1")),
    ("test-exec", fit(LaunchParameters="test_exec")),
    ("licenses", replace(FIT, licenses=(License("matlab", 10, 3),))),
    ("federation", replace(FIT, federation="grid")),
    ("keep-power-save", fit(ReconfigFlags="KeepPowerSaveSettings")),
    ("memory-percent-last", replace(
        fit(SlurmctldParameters="node_reg_mem_percent=90,enable_configless"),
        site=replace(fit(SlurmctldParameters="node_reg_mem_percent=90,enable_configless").site,
                     version="25.05.1"))),
    ("power-save-interval", fit(SlurmctldParameters="power_save_interval=60")),
    ("prolog-hold", fit(SchedulerParameters="", Prolog="/shared/prolog")),
    ("rates", fit(ResumeRate="")),
    ("slurmd-timeout", fit(SlurmdTimeout="0")),
    ("spelling", fit(SlurmctldParameters="enable_configles")),
    ("suspend-exc-down", fit(SuspendExcStates="DOWN")),
    ("tree-width-corrupts", fit(TreeWidth="65533")),
    ("unpatched-slurm", of_version("24.05.8")),
]  # fmt: skip


@pytest.mark.parametrize("version", ["24.11", "25.11", "26.05"])
def test_a_site_that_fits_has_no_finding(version):
    assert site_checks(captured("fit", version), FITTING) == ()


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)])
def test_one_difference_is_found_with_its_place_and_its_mend(case):
    slug, facts, *cloud = case
    findings = site_checks(facts, replace(FITTING, **cloud[0]) if cloud else FITTING)
    found = [item for item in findings if item.slug == slug]
    assert found, f"found only {[item.slug for item in findings]}"
    for item in found:
        assert item.origin
        assert item.message
        assert item.fix
        assert item.source.startswith("https://")


def test_every_rule_has_a_case():
    assert {case[0] for case in CASES} == {rule.slug for rule in RULES} | LINTED


def test_slugs_are_unique():
    slugs = [rule.slug for rule in RULES]
    assert len(slugs) == len(set(slugs))
    assert not set(slugs) & LINTED


def test_errors_come_first():
    severities = [item.severity for item in site_checks(captured("wrong"), FITTING)]
    assert severities == sorted(severities, key=lambda item: item is not Severity.ERROR)


def test_a_finding_names_its_line_and_its_exact_mend():
    [finding] = [
        item
        for item in site_checks(captured("wrong"), FITTING)
        if item.slug == "partition-of-all-nodes"
    ]
    assert str(finding) == (
        "error: /etc/slurm/nodes.conf:4: partition batch is of ALL nodes: its jobs would start"
        " instances, and its SuspendTime holds for cloud nodes too [partition-of-all-nodes]\n"
        "  fix: List the racks by name.\n"
        "    PartitionName=batch Nodes=rack[01-02],cpu-[001-004]"
    )


def test_one_line_mends_everything_about_slurmctld_parameters():
    lines = {
        item.setting
        for item in site_checks(captured("wrong"), FITTING)
        if item.setting.startswith("SlurmctldParameters=")
    }
    assert lines == {
        "SlurmctldParameters=power_save_interval=60,enable_configless,idle_on_node_suspend"
    }


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("RequeueExit", "", "RequeueExit=85"),
        ("RequeueExit", "90-95,12", "RequeueExit=90-95,12,85"),
        ("RequeueExitHold", "80-89,3", "RequeueExitHold=3"),
    ],
)
def test_the_sites_other_codes_are_kept_for_requeued_jobs(name, value, line):
    [finding] = site_checks(fit(**{name: value}), FITTING)
    assert (finding.slug, finding.setting) == ("requeue-exit", line)


def test_a_name_in_a_command_is_quoted():
    facts = replace(FIT, reservations=(SlurmReservation("x; reboot", frozenset({"ALL_NODES"})),))
    [finding] = site_checks(facts, FITTING)
    assert "'reservationname=x; reboot'" in finding.setting


def test_a_route_through_the_tunnel_is_no_overlap():
    assert site_checks(route("10.42.0.0/16", direct=False), FITTING) == ()


def test_a_tree_with_our_nodes_is_no_finding():
    text = "SwitchName=a Nodes=rack[01-02]\nSwitchName=b Nodes=cpu-[001-004],gpu-[001-002]\n"
    assert site_checks(with_file("topology.conf", text, fit(**TREE)), FITTING) == ()


def test_blocks_without_our_nodes_are_no_finding():
    facts = with_file(
        "topology.conf", "BlockName=b Nodes=rack[01-02]", fit(TopologyPlugin="topology/block")
    )
    assert site_checks(facts, FITTING) == ()


def test_a_name_that_the_sites_dns_knows_makes_cloud_dns_work():
    parameters = "enable_configless,idle_on_node_suspend,cloud_dns"
    facts = replace(fit(SlurmctldParameters=parameters), addresses={"cpu-001": ("10.42.0.7",)})
    assert site_checks(facts, FITTING) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- [",
        "tree: 3",
        "- tree: {switches: 7}",
        "- tree: {switches: [4, {nodes: 5}]}",
        "[" * 5000,
    ],
)
def test_an_odd_topology_yaml_ends_in_no_exception(text):
    site_checks(with_file("topology.yaml", text), FITTING)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "value", ["", "9" * 400, "-1", "²", "a[1-", "(", "\x1b[2J", "=,=", "rack(x)"]
)
def test_an_odd_value_ends_in_no_exception(name, value):
    site_checks(fit(**{name: value}), FITTING)


def test_facts_without_any_answer_end_in_no_exception():
    bare = PreflightFacts(with_lines(FIT, "ClusterName=x", {}).site)
    assert isinstance(site_checks(bare, FITTING), tuple)


def test_the_sentence_counts():
    check = SiteCheck("rack", site_checks(fit(AuthType="auth/none", JobRequeue="0"), FITTING))
    assert check.sentence == "rack is not ready: 1 error, 1 warning"
    assert not check.ready
    assert SiteCheck("rack", ()).sentence == "rack is ready: 0 errors, 0 warnings"
