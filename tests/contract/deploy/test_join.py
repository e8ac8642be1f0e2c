"""Join and leave a site, on the local cloud's API and a controller's real files."""

from __future__ import annotations

import base64
import configparser
import json

import pytest

from slurmplugins.config import burst, governor, node, site
from slurmplugins.model import site_key
from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.fakes.site import MUNGE_KEY, SLURM_CONF, FakeSite
from toolkit.config import parse
from toolkit.deploy import names
from toolkit.deploy.destroy import Destroyer
from toolkit.deploy.image_lock import ImageLock
from toolkit.deploy.session import Clients
from toolkit.deploy.stack_events import stack_status
from toolkit.errors import NotConfirmed
from toolkit.join.apply import Join
from toolkit.join.aws_side import AwsSide
from toolkit.join.errors import (
    JoinConflict,
    JoinError,
    PartitionInUse,
    ReconfigureRefused,
    SiteNotReady,
)
from toolkit.join.remove import Removal
from toolkit.output import PlainReporter

OURS = "/etc/slurm/toolkit-burst.conf"
ZONE = "us-east-1a"
pytestmark = LEAVES_A_CLOUD


class Setting:
    """A site, a VPC of it in the local cloud, and the join of both."""

    def __init__(self, deployment, folder) -> None:
        self.site = FakeSite(folder / "controller")
        self.sites = [self.site]
        own = deployment.config
        ec2 = Clients(own).client("ec2")
        vpc = ec2.create_vpc(CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.77.1.0/24", AvailabilityZone=ZONE)
        self.document = {
            "kind": "join",
            "cluster": "burst",
            "profile": "local",
            "aws": own.aws.model_dump(mode="json", exclude_none=True),
            "network": {
                "cidr": "10.77.0.0/16",
                "vpc": vpc,
                "zones": {ZONE: "10.77.1.0/24"},
                "subnets": {ZONE: subnet["Subnet"]["SubnetId"]},
            },
            "site": {
                "controllers": ["ctl"],
                "networks": ["10.77.0.0/24"],
                "users": [{"name": "ada", "uid": 2001}],
                "aws": {"principal": "arn:aws:iam::123456789012:user/ctl", "profile": "lab"},
            },
            "pools": {
                "cloud": {
                    "count": 4,
                    "shape": {"cpus": 2, "memory_gib": 4},
                    "offerings": [{"type": "m7i.large", "capacity": "on-demand"}],
                }
            },
            "partitions": {"burst": {"pools": ["cloud"]}},
            "burst": {
                "main": {"partition": "burst", "accounts": {"vision": {"usd_per_month": 500}}}
            },
        }
        self.lock = ImageLock(folder / "cluster.lock.yaml")

    @property
    def config(self):
        return parse(json.dumps(self.document))

    @property
    def clients(self):
        return Clients(self.config)

    def join(self, *skipped: str) -> Join:
        report = PlainReporter()
        aws = AwsSide(self.config, self.clients, report, self.lock)
        return Join(self.config, aws, report, self.sites, skipped=skipped)

    def removal(self) -> Removal:
        report = PlainReporter()
        destroyer = Destroyer(self.config, self.clients, report, sleep=lambda _: None)
        return Removal(self.config, self.join(), destroyer, report, sleep=lambda _: None)


@pytest.fixture
def joining(config, tmp_path):
    return Setting(config, tmp_path)


def test_a_site_is_joined_and_left_as_it_was(joining):
    site_before = joining.site.files()
    plan = joining.join().plan()
    assert "+Include toolkit-burst.conf" in plan.text()
    assert "note: a host with a slurm.conf of its own needs toolkit-burst.conf" in plan.text()
    assert "ResumeProgram: /site/resume → /opt/slurm-toolkit/bin/slurm-resume" in plan.text()
    assert joining.site.files() == site_before
    joining.join().apply(yes=True)
    assert joining.join().plan().is_empty
    assert joining.site.partitions == ["main", "burst"]
    assert_nodes_get_the_site(joining)
    assert_programs_know_the_site(joining.site)
    joined = joining.site.files()
    joining.join().apply(yes=True)
    assert joining.site.files() == joined
    assert joining.site.commands.count(["/usr/bin/scontrol", "reconfigure"]) == 1

    joining.removal().remove(yes=True)
    assert joining.site.files() == site_before
    assert joining.site.partitions == ["main"]
    cloudformation = joining.clients.client("cloudformation")
    assert not stack_status(cloudformation, names.stack(joining.config))
    joining.removal().remove(yes=True)


def assert_nodes_get_the_site(joining) -> None:
    """Find the site's key in the secret, its controller in user data."""
    secret = joining.clients.client("secretsmanager").get_secret_value(SecretId="burst/slurm-key")
    assert site_key.parse(secret["SecretString"]) == site_key.SiteKey("munge.key", MUNGE_KEY)
    ec2 = joining.clients.client("ec2")
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateName="burst.cloud")[
        "LaunchTemplateVersions"
    ]
    script = base64.b64decode(version["LaunchTemplateData"]["UserData"]).decode()
    document = script.partition("<<'JSON'\n")[2].partition("\nJSON")[0]
    path = joining.lock.path.with_name("node.json")
    path.write_text(document)
    settings = node.load(path)
    assert settings.slurmctlds == (("ctl", "10.77.0.10", 6817),)
    assert settings.site == node.SiteAccounts(("slurm", 64030, 64030), (("ada", 2001, 2001),))


def assert_programs_know_the_site(controller: FakeSite) -> None:
    """Read what the installed programs would read."""
    etc = controller.root / "etc/slurm-toolkit"
    known = site.load(etc / "site.json")
    assert known.programs == {"resume": "/site/resume"}
    assert known.nodes == {f"cloud-{number:03}" for number in range(1, 5)}
    engine = burst.load(etc / "burst.json")
    assert (engine.cluster, engine.slurm_cluster) == ("burst", "Lab")
    aws = configparser.ConfigParser()
    aws.read(etc / "aws-config")
    assert aws["default"]["source_profile"] == "lab"
    assert aws["default"]["role_arn"].startswith("arn:aws:iam::123456789012:role/")
    assert aws["default"]["endpoint_url"] == engine.endpoint_url
    assert (controller.root / "opt/slurm-toolkit/bin/slurm-resume").stat().st_mode & 0o111
    assert_the_governor_looks_at_the_site(controller, governor.load(etc / "burst.json"))


def assert_the_governor_looks_at_the_site(controller: FakeSite, rules) -> None:
    """Find its rule for the site's partition, its timer and its folder."""
    assert rules.rules["main"].cloud == "burst"
    assert (controller.root / "opt/slurm-toolkit/bin/slurm-govern").stat().st_mode & 0o111
    unit = controller.read("/etc/systemd/system/slurm-govern.service")
    assert "ExecStart=/opt/slurm-toolkit/bin/slurm-govern\n" in unit
    assert f"RequiresMountsFor={rules.folder}\n" in unit
    assert "User=slurm\nGroup=64030\n" in unit
    assert (controller.root / rules.folder.removeprefix("/")).is_dir()
    enabled = ["/usr/bin/systemctl", "enable", "--now", "slurm-reconcile.timer"]
    assert [*enabled, "slurm-govern.timer", "slurm-records.timer"] in controller.commands


def test_records_outlive_the_join_unless_a_person_deletes_them(joining):
    assert any("(records)" in line for line in joining.join().plan().text().splitlines())
    joining.join().apply(yes=True)
    bucket = names.backup_bucket(joining.config, joining.clients.account)
    unit = joining.site.read("/etc/systemd/system/slurm-records.service")
    assert f"ExecStart=/opt/slurm-toolkit/bin/slurm-records write {bucket}\n" in unit
    assert "RequiresMountsFor=/var/lib/slurm-toolkit\n" in unit
    s3 = joining.clients.client("s3")
    s3.put_object(Bucket=bucket, Key="records/sacct/20261126T000000Z-20261126T003000Z-a", Body=b"")
    assert "kept: 1 records of jobs, instances and prices" in joining.removal().preview()
    joining.removal().remove(yes=True)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1
    joining.removal().remove(yes=True, with_records=True)
    assert bucket not in {item["Name"] for item in s3.list_buckets()["Buckets"]}


def test_several_controllers_share_what_was_spent(joining):
    site = joining.site
    site.running_config = "SlurmctldHost[1] = ctl2\nStateSaveLocation = /nfs/slurmctld\n"
    joining.join().apply(yes=True)
    rules = governor.load(site.root / "etc/slurm-toolkit/burst.json")
    assert rules.folder == "/nfs/slurmctld/toolkit-burst"
    assert (site.root / "nfs/slurmctld/toolkit-burst").is_dir()
    joining.removal().remove(yes=True)
    assert not (site.root / "nfs/slurmctld/toolkit-burst").exists()
    assert (site.root / "nfs/slurmctld").is_dir()


def test_each_controller_gets_and_loses_the_line_in_its_own_file(joining, tmp_path):
    """Apply and remove go on where one was killed between two controllers."""
    backup = FakeSite(tmp_path / "backup")
    backup.host = "ctl2"
    joining.sites.append(backup)
    conf = backup.root / "etc/slurm/slurm.conf"
    own_text = f"# of the backup\n{SLURM_CONF}\n"
    conf.write_text(own_text)
    joining.join().apply(yes=True)
    with_line = conf.read_text()
    assert with_line.startswith(own_text)
    assert "\nInclude toolkit-burst.conf\n" in with_line
    conf.write_text(own_text)
    assert "on ctl2:\n--- /etc/slurm/slurm.conf" in joining.join().plan().text()
    joining.join().apply(yes=True)
    assert conf.read_text() == with_line

    joining.site.failing = "reconfigure"
    with pytest.raises(ReconfigureRefused):
        joining.removal().remove(yes=True)
    joining.site.failing = ""
    conf.write_text(with_line)
    joining.removal().remove(yes=True)
    assert conf.read_text() == own_text
    assert OURS not in backup.files()


def test_slurm_conf_changes_with_consent_alone(joining):
    before = joining.site.files()
    with pytest.raises(NotConfirmed, match="adds one line to /etc/slurm/slurm"):
        joining.join().apply(yes=False)
    assert joining.site.files() == before


def test_a_person_may_add_the_line(joining):
    joining.document["site"]["include"] = "by-hand"
    with pytest.raises(JoinError) as caught:
        joining.join().apply(yes=False)
    assert (
        "at the end of /etc/slurm/slurm.conf: Include toolkit-burst.conf" in caught.value.next_step
    )
    conf = joining.site.root / "etc/slurm/slurm.conf"
    by_hand = f"{SLURM_CONF}\nInclude toolkit-burst.conf\n"
    conf.write_text(by_hand)
    joining.join().apply(yes=False)
    assert "burst" in joining.site.partitions
    with pytest.raises(JoinError, match="which is empty now"):
        joining.removal().remove(yes=True)
    assert conf.read_text() == by_hand
    assert joining.site.partitions == ["main"]
    conf.write_text(SLURM_CONF)
    joining.removal().remove(yes=True)
    assert OURS not in joining.site.files()


def test_a_conflict_is_refused_with_its_line_before_anything_is_made(joining):
    conf = joining.site.root / "etc/slurm/slurm.conf"
    conf.write_text(f"{SLURM_CONF}\nPartitionName=burst Nodes=rack1\n")
    before = joining.site.files()
    assert joining.join().plan().conflicts
    with pytest.raises(JoinConflict, match=r"slurm\.conf:9: the site has a partition burst"):
        joining.join().apply(yes=True)
    assert joining.site.files() == before
    cloudformation = joining.clients.client("cloudformation")
    assert not stack_status(cloudformation, names.stack(joining.config))


def test_a_site_that_is_not_ready_is_refused_before_anything_is_made(joining):
    conf = joining.site.root / "etc/slurm/slurm.conf"
    conf.write_text(SLURM_CONF.replace(",idle_on_node_suspend", ""))
    before = joining.site.files()
    plan = joining.join().plan()
    assert plan.is_refused
    line = "error: /etc/slurm/slurm.conf:5: nodes that are down or drained when they power down"
    assert plan.text() == f"{line} stay so for ever [idle-on-suspend]"
    with pytest.raises(SiteNotReady, match="Lab is not ready for cloud nodes") as caught:
        joining.join().apply(yes=True)
    assert caught.value.next_step.endswith("or go on with --skip-check idle-on-suspend")
    assert joining.site.files() == before
    cloudformation = joining.clients.client("cloudformation")
    assert not stack_status(cloudformation, names.stack(joining.config))


def test_an_error_of_the_site_is_skipped_by_its_name(joining, capsys):
    conf = joining.site.root / "etc/slurm/slurm.conf"
    conf.write_text(SLURM_CONF.replace(",idle_on_node_suspend", ""))
    joining.join("idle-on-suspend").apply(yes=True)
    assert joining.join("idle-on-suspend").plan().is_empty
    assert "skipped: error: /etc/slurm/slurm.conf:5: " in capsys.readouterr().err
    assert joining.site.partitions == ["main", "burst"]
    assert joining.join("fan-out").plan().is_refused


def test_a_conflict_is_told_once(joining):
    conf = joining.site.root / "etc/slurm/slurm.conf"
    conf.write_text(SLURM_CONF.replace("Nodes=rack[1-2]", "Nodes=ALL"))
    plan = joining.join().plan()
    assert "partition-of-all-nodes" in {item.slug for item in plan.check.errors}
    assert plan.text().count("\n") == 0
    assert plan.text().startswith("conflict: /etc/slurm/slurm.conf:8: partition main has Nodes=ALL")


def test_static_nodes_of_a_join_are_no_fault_of_the_site(joining):
    joining.document["pools"]["cloud"]["static"] = 1
    joining.join().apply(yes=True)
    joining.site.running_config = "SuspendExcNodes = cloud-001\n"
    plan = joining.join().plan()
    assert (plan.refusals, plan.is_empty) == ((), True)


def test_a_slurmctld_that_refuses_gets_its_files_back(joining):
    joining.site.refuses = True
    with pytest.raises(ReconfigureRefused):
        joining.join().apply(yes=True)
    assert joining.site.read("/etc/slurm/slurm.conf") == SLURM_CONF
    assert OURS not in joining.site.files()


def test_credentials_that_do_not_work_are_known_before_slurm_conf_changes(joining):
    joining.site.failing = "describe_instances"
    with pytest.raises(JoinError, match="slurm on the controller can't reach EC2"):
        joining.join().apply(yes=True)
    assert joining.site.read("/etc/slurm/slurm.conf") == SLURM_CONF


def test_a_subnet_of_another_vpc_is_refused(joining):
    joining.document["network"]["cidr"] = "10.78.0.0/16"
    joining.document["network"]["zones"] = {ZONE: "10.78.1.0/24"}
    with pytest.raises(JoinConflict, match=r"has CidrBlock 10\.77\.1\.0/24"):
        joining.join().plan()


def test_jobs_end_or_go_back_to_the_racks(joining):
    joining.join().apply(yes=True)
    joining.site.jobs = {"7": "burst", "8": "main,burst", "9": "main"}
    text = joining.removal().preview()
    assert "- job 7: cancelled" in text
    assert "~ job 8: only in main" in text
    with pytest.raises(NotConfirmed):
        joining.removal().remove(yes=False)
    joining.removal().remove(yes=True)
    assert joining.site.jobs == {"8": "main", "9": "main"}


def test_a_running_job_of_the_racks_outlives_the_removal(joining):
    before = joining.site.files()
    joining.join().apply(yes=True)
    joining.site.running = ["7", "8"]
    with pytest.raises(PartitionInUse, match="2 running jobs may name them"):
        joining.removal().remove(yes=True)
    assert joining.site.read(OURS).endswith("PartitionName=burst State=INACTIVE\n")
    assert not stack_status(joining.clients.client("cloudformation"), names.stack(joining.config))
    joining.site.running = ["8", "9"]
    with pytest.raises(PartitionInUse, match="1 running jobs"):
        joining.removal().remove(yes=True)
    joining.site.running = ["9"]
    joining.removal().remove(yes=True)
    assert joining.site.files() == before
