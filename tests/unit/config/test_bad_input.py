"""Values of cluster.yaml that can't work on AWS are refused with their line."""

import pytest
from botocore.session import Session

from tests.unit.config.test_load import GOOD, edited, problems
from toolkit.config import parse, regions
from toolkit.errors import ConfigInvalid


def line_of(text: str, part: str) -> int:
    """Return the number of the first line with this part."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def found(text: str) -> list[tuple[str, int, str]]:
    """Return every problem: path, line, message."""
    with pytest.raises(ConfigInvalid) as caught:
        parse(text)
    return [(problem.path, problem.line, problem.message) for problem in caught.value.problems]


# Each name, and where it lies in the good file.
NAMES = [
    ("cluster: demo", "cluster: {}", "cluster"),
    ("  gpu:\n", "  {}:\n", "pools.{}"),
    ("  spot: {pools: [gpu]}", "  {}: {{pools: [gpu]}}", "partitions.{}"),
    ("{name: vision}", "{{name: {}}}", "accounts[0].name"),
    ("{name: ada,", "{{name: {},", "users[0].name"),
]


WORDS = ["no", "on", "off", "yes", "true", "false", "null", "~", "y", '"no"', "'null'"]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(("old", "new", "path"), NAMES, ids=lambda text: text.split(":")[0])
def test_a_name_that_yaml_reads_as_something_else_is_refused(old, new, path, word):
    """Refuse the word at its line, with or without quotes.

    CloudFormation reads YAML 1.1, in which `no` is false.
    """
    text = edited(old, new.format(word))
    place = path.format(word.strip("\"'").replace("~", "null"))
    messages = {
        message
        for at, line, message in found(text)
        if at == place and line == line_of(text, new.format(word).strip("\n"))
    }
    assert any(text.startswith("YAML") and "another name" in text for text in messages), messages


@pytest.mark.parametrize("word", ["0777", "1e3", "2026-01-01", "0x1f", "12:30:00", "1_000"])
@pytest.mark.parametrize(("old", "new", "path"), NAMES, ids=lambda text: text.split(":")[0])
def test_a_number_or_date_as_name_is_refused_at_its_line(old, new, path, word):
    """Name the line, and the characters that a name may have."""
    del path
    text = edited(old, new.format(word))
    expected_line = line_of(text, new.format(word).strip("\n"))
    messages = [message for _, line, message in found(text) if line == expected_line]
    assert any("starting with a letter" in message for message in messages), messages
    assert not any("put it in quotes" in message for message in messages)


@pytest.mark.parametrize(
    ("cluster", "owner"),
    [
        ("images", "stack of image builds"),
        ("toolkit-images", "bucket of image builds"),
        ("xn--lab", "S3"),
        ("sthree-lab", "S3"),
        ("amzn-s3-demo-lab", "S3"),
    ],
)
def test_a_cluster_name_whose_resources_have_an_owner_already_is_refused(cluster, owner):
    line, message = problems(edited("cluster: demo", f"cluster: {cluster}"))["cluster"]
    assert line == 1
    assert owner in message


@pytest.mark.parametrize(("name", "owner"), [("head", "the head node"), ("login", "login nodes")])
def test_a_pool_named_as_in_reports_is_refused(name, owner):
    """Keep their costs apart: reports call their pools `head` and `login`."""
    text = edited("  gpu:\n", f"  {name}:\n").replace("[gpu]", f"[{name}]")
    line, message = problems(text)[f"pools.{name}"]
    assert line == line_of(text, f"  {name}:")
    assert owner in message


def test_a_partition_named_default_is_refused():
    """Slurm reads PartitionName=DEFAULT as default values, in any case."""
    text = edited("  spot: {pools", "  default: {pools")
    assert "Slurm" in problems(text)["partitions.default"][1]


@pytest.mark.parametrize(
    "name",
    [
        "root",
        "slurm",
        "mysql",
        "nobody",
        "ubuntu",
        "mlflow",
        "sudo",
        "shadow",
        "docker",
        "systemd-network",
        "_chrony",
    ],
)
def test_a_user_or_group_of_the_system_is_refused(name):
    line, message = problems(edited("name: ada", f"name: {name}"))["users[0].name"]
    assert line == line_of(GOOD, "name: ada")
    assert "user or group of the system" in message


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("cn-north-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("us-iso-east-1", "aws-iso"),
    ],
)
def test_a_region_of_another_partition_is_refused(region, partition):
    """Refuse China, GovCloud and the isolated regions.

    Their ARNs and service names differ from those in the stack.
    """
    text = GOOD.replace("us-east-1", region)
    line, message = problems(text)["aws.region"]
    assert line == 2
    assert partition in message


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_regions_and_partitions_are_those_of_botocore(partition):
    """Read botocore's file as its session does."""
    names = Session().get_available_regions("ec2", partition)
    assert {regions.partition_of(name) for name in names} == {partition}
    assert partition != "aws" or sorted(regions.regions()) == sorted(names)


def test_a_region_that_does_not_exist_is_refused_with_a_near_one():
    text = GOOD.replace("us-east-1", "ca-centrl-1")
    assert "did you mean 'ca-central-1'?" in problems(text)["aws.region"][1]


def with_efa(efa: int, *types: str) -> str:
    """Return the good file with a pool of these types with EFA."""
    offerings = "\n".join(f"      - {{type: {name}, capacity: on-demand}}" for name in types)
    text = edited("      - {type: g5.xlarge, capacity: spot}", offerings)
    return text.replace("count: 4", f"count: 4\n    efa: {efa}")


def test_a_type_without_efa_is_refused_where_efa_is_requested():
    """Name the types of its family that have it."""
    text = with_efa(1, "g5.48xlarge", "g5.xlarge")
    line, message = problems(text)["pools.gpu.offerings[1].type"]
    assert line == line_of(text, "g5.xlarge")
    assert "g5.xlarge has no EFA" in message
    assert "g5.8xlarge" in message


def test_a_family_without_efa_is_refused_where_efa_is_requested():
    assert (
        "no type of t3 has" in problems(with_efa(1, "t3.large"))["pools.gpu.offerings[0].type"][1]
    )


def test_more_interfaces_than_a_type_has_are_refused():
    line, message = problems(with_efa(32, "p4d.24xlarge"))["pools.gpu.offerings[0].type"]
    assert line == line_of(with_efa(32, "p4d.24xlarge"), "p4d.24xlarge")
    assert message == "p4d.24xlarge has 4 EFA interfaces, and the pool's efa is 32"


def test_types_whose_first_card_differs_are_refused_in_one_pool():
    """Keep p6-b300 apart: the first of its cards has no EFA.

    A pool has one launch template for all its types.
    """
    text = with_efa(16, "p5en.48xlarge", "p6-b300.48xlarge")
    message = problems(text)["pools.gpu.offerings[1].type"][1]
    assert "first network card" in message
    assert parse(with_efa(16, "p6-b300.48xlarge")).pools["gpu"].efa == 16


@pytest.mark.parametrize("name", ["p9.48xlarge", "hpc9a.96xlarge"])
def test_a_type_of_an_unknown_family_may_have_efa(name):
    """Leave newer types to EC2."""
    assert parse(with_efa(8, name)).pools["gpu"].efa == 8


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (edited("type: g5.xlarge", "type: c8g.4xlarge"), "pools.gpu.offerings[0].type"),
        (GOOD + "head: {instance_type: m7g.large}\n", "head.instance_type"),
        (
            GOOD + "login_nodes: {count: 1, instance_type: m7g.large}\n",
            "login_nodes.instance_type",
        ),
        (GOOD + "images: {builder_type: m7g.large}\n", "images.builder_type"),
    ],
)
def test_a_type_with_arm_processors_is_refused(text, path):
    """Images are built for x86_64."""
    assert "x86_64" in problems(text)[path][1]


@pytest.mark.parametrize("section", ["head", "login_nodes"])
def test_a_root_disk_smaller_than_the_image_is_refused(section):
    """EC2 refuses a volume that is smaller than its snapshot."""
    text = GOOD + f"{section}: {{root_gib: 29}}\n"
    line, message = problems(text)[f"{section}.root_gib"]
    assert line == line_of(text, "root_gib")
    assert "at least 30" in message
    assert getattr(parse(GOOD + f"{section}: {{root_gib: 30}}\n"), section).root_gib == 30


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ("count: -1", "count"),
        ("count: 10", "count"),
        ("count: 1, max_user_share: 0", "max_user_share"),
        ("count: 1, max_user_share: 1.5", "max_user_share"),
        ("count: 1, typ: m7i.large", "typ"),
    ],
)
def test_login_nodes_that_can_not_be_are_refused_with_their_line(settings, key):
    text = GOOD + f"login_nodes: {{{settings}}}\n"
    line, _ = problems(text)[f"login_nodes.{key}"]
    assert line == line_of(text, "login_nodes")


def test_a_cluster_named_as_anothers_backups_is_refused():
    line, message = problems(edited("cluster: demo", "cluster: lab-backups"))["cluster"]
    assert line == 1
    assert "stack of a cluster's backups" in message


@pytest.mark.parametrize(
    ("section", "path", "message"),
    [
        ("backups: {every: 5m}", "backups.every", "expected 15m or more"),
        ("backups: {every: 20d}", "backups.every", "at most half of keep 30d"),
        ("backups: {every: 2d, keep: 3d}", "backups.every", "one missed backup would leave none"),
        ("backups: {every: hourly}", "backups.every", "a period such as 6h"),
        ("backups: {keep: 12h}", "backups.keep", "days such as 30d"),
        ("backups: {every: 0h}", "backups.every", "a period such as 6h"),
        ("shared: {backup_days: 91}", "shared.backup_days", "less than or equal to 90"),
        ("shared: {backup_time: '25:00'}", "shared.backup_time", "a time of day in UTC"),
        (
            "shared: {backup_days: 0, backup_time: '03:00'}",
            "shared.backup_time",
            "FSx makes no daily backup",
        ),
        ("shared: {from_backup: snap-0123456789}", "shared.from_backup", "the id of an FSx backup"),
    ],
)
def test_backups_that_can_not_work_are_refused_at_their_line(section, path, message):
    text = f"{GOOD}\n{section}\n"
    found_lines = {line for at, line, problem in found(text) if at == path and message in problem}
    assert found_lines == {line_of(text, section)}


def test_backups_are_taken_every_six_hours_and_kept_a_month_by_default():
    config = parse(GOOD)
    assert config.backups.enabled
    assert (config.backups.period, config.backups.days) == (6 * 3600, 30)
    assert config.shared.backup_days == 7
    assert parse(f"{GOOD}\nbackups: {{every: 1h, keep: 14d}}\n").backups.period == 3600
