"""cluster.yaml: the accepted values, and the message for each mistake."""

import re
from pathlib import Path

import pytest

from toolkit.config import load, parse
from toolkit.errors import ConfigInvalid, ConfigNotFound

EXAMPLES = Path(__file__).parents[3] / "examples"

GOOD = """\
cluster: demo
aws: {region: us-east-1}
network:
  cidr: 10.42.0.0/16
  zones:
    us-east-1a: 10.42.1.0/24
    us-east-1b: 10.42.2.0/24
pools:
  gpu:
    count: 4
    shape: {cpus: 4, memory_gib: 16, gpus: 1, gpu: a10g}
    offerings:
      - {type: g5.xlarge, capacity: spot}
partitions:
  spot: {pools: [gpu]}
accounts:
  - {name: vision}
users:
  - {name: ada, uid: 2001, account: vision}
"""


def problems(text: str) -> dict[str, tuple[int, str]]:
    """Return the line and the message of every problem, by path."""
    with pytest.raises(ConfigInvalid) as caught:
        parse(text)
    return {problem.path: (problem.line, problem.message) for problem in caught.value.problems}


def edited(old: str, new: str) -> str:
    """Return the good file with one mistake in it."""
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_valid(path):
    """Load every example of the repository without a change."""
    assert load(path).cluster


def test_defaults_complete_a_minimal_configuration():
    """Fill in the keys that a minimal file leaves out."""
    config = parse(GOOD)
    assert config.profile == "aws"
    assert config.slurm.version == "23.11"
    assert config.aws.endpoint_url is None
    assert config.access.login[0] == "aws"


def test_the_head_node_has_address_ten_of_the_first_zone():
    """Give the head node the same address in every deploy.

    The address is in the compute nodes' user data before the head node is launched.
    """
    config = parse(GOOD)
    assert str(config.network.head_address) == "10.42.1.10"
    assert config.network.head_zone == "us-east-1a"


def test_a_pool_is_in_every_zone_unless_it_names_its_own():
    """Take all zones in the file's order for an empty list."""
    assert parse(GOOD).pool_zones("gpu") == ("us-east-1a", "us-east-1b")
    own = parse(edited("count: 4", "count: 4\n    zones: [us-east-1b]"))
    assert own.pool_zones("gpu") == ("us-east-1b",)


@pytest.mark.parametrize(
    ("count", "nodes"),
    [(1, "gpu-001"), (4, "gpu-[001-004]"), (999, "gpu-[001-999]"), (1000, "gpu-[0001-1000]")],
)
def test_the_node_names_of_a_pool_have_one_width(count, nodes):
    """Pad node names to one width, because Slurm sorts them as text."""
    assert parse(edited("count: 4", f"count: {count}")).nodes("gpu") == nodes


def test_every_problem_is_reported_at_once_with_its_line():
    """Report wrong values and contradictions between sections in one run."""
    text = (
        GOOD.replace("count: 4", "count: 0")
        .replace("pools: [gpu]", "pools: [gpux], defualt: true")
        .replace("uid: 2001", "uid: 12")
        .replace("account: vision", "account: visoin")
        .replace("us-east-1b: 10.42.2.0/24", "us-east-1b: 10.99.2.0/24")
    )
    messages = problems(text)
    assert messages["network.zones.us-east-1b"][0] == 7
    assert messages["pools.gpu.count"] == (10, "expected greater than or equal to 1, found 0")
    assert messages["partitions.spot.pools[0]"] == (15, "unknown pool 'gpux'; did you mean 'gpu'?")
    assert messages["partitions.spot.defualt"] == (15, "unknown key; did you mean 'default'?")
    assert messages["users[0].uid"][0] == 19
    assert messages["users[0].account"] == (19, "unknown account 'visoin'; did you mean 'vision'?")


def test_problems_are_in_line_order():
    """Sort problems by line, because people mend a file from the top."""
    with pytest.raises(ConfigInvalid) as caught:
        parse(GOOD.replace("cluster: demo", "cluster: Demo").replace("uid: 2001", "uid: 1"))
    lines = [problem.line for problem in caught.value.problems]
    assert lines == sorted(lines)


@pytest.mark.parametrize(
    ("old", "new", "path", "expected"),
    [
        ("cluster: demo", "cluster: Demo", "cluster", 'found "Demo"'),
        ("cluster: demo", "cluster: demo\nprofle: local", "profle", "did you mean 'profile'?"),
        ("memory_gib", "memory_gb", "pools.gpu.shape.memory_gb", "did you mean 'memory_gib'?"),
        ("memory_gib: 16, ", "", "pools.gpu.shape.memory_gib", "missing"),
        (
            "capacity: spot",
            "capacity: sport",
            "pools.gpu.offerings[0].capacity",
            "'spot', 'on-demand' or",
        ),
        ("count: 4", "count: '4'", "pools.gpu.count", "valid integer"),
        ("count: 4", "count: true", "pools.gpu.count", "valid integer"),
        (", gpu: a10g", "", "pools.gpu.shape", "the kind of its GPUs"),
        ("gpus: 1, ", "", "pools.gpu.shape.gpu", "the number"),
        ("10.42.2.0/24", "10.42.1.128/25", "network.zones.us-east-1b", "overlaps 10.42.1.0/24"),
        ("10.42.2.0/24", "10.42.2.1/24", "network.zones.us-east-1b", "first address"),
        ("us-east-1b:", "eu-west-1b:", "network.zones.eu-west-1b", "zone of aws.region us-east-1"),
        ("us-east-1b: 10.42.2.0/24", "us-east-1b: 10.42.2.0/29", "network.zones.us-east-1b", "/29"),
        ("pools: [gpu]", "pools: []", "partitions.spot.pools", "at least 1"),
        (
            "{name: ada",
            "{name: bob, uid: 2001, account: vision}\n  - {name: ada",
            "users[1]",
            "twice",
        ),
        ("{name: vision}", "{name: vision, parent: vision}", "accounts[0].parent", "own ancestor"),
        ("{name: vision}", "{name: vision, users: [bob]}", "accounts[0].users[0]", "unknown user"),
        ("cluster: demo", "cluster: demo\nslurm: {version: 24.11}", "slurm.version", "in quotes"),
        ("cluster: demo", "cluster: demo\naccess: {login: ['{x}']}", "access.login[0]", "{region}"),
        ("region: us-east-1", "region: useast", "aws.region", "a region such as us-east-1"),
    ],
)
def test_a_mistake_is_reported_at_its_key_with_the_expected_value(old, new, path, expected):
    """Name the key and the expected value in the message."""
    messages = problems(edited(old, new))
    assert path in messages, messages
    assert expected in messages[path][1]


@pytest.mark.parametrize(
    "setting",
    [
        'Foo: "1\\nInclude /etc/shadow"',
        'Foo: "1 # NodeName=x"',
        'Foo: "1\\\\"',
        "Include: /etc/shadow",
        "include: /etc/shadow",
        "NodeName: evil",
        "SlurmctldHost: elsewhere",
        '"Foo=1 Bar": 2',
        '"": 2',
        "ResumeProgram: /bin/evil",
        "PrivateData: jobs",
    ],
)
def test_settings_can_not_add_lines_to_slurm_conf(setting):
    """Refuse a value that ends a line or sets another key.

    slurm.conf has no quoting.
    """
    text = edited("cluster: demo", f"cluster: demo\nslurm: {{settings: {{{setting}}}}}")
    assert any(path.startswith("slurm.settings") for path in problems(text))


@pytest.mark.parametrize(
    "name", ["a b", "x;id", "$(id)", "../x", "Ünder", "a" * 33, "-x", "a\\nb", "", "x'", '\\"']
)
def test_hostile_names_are_refused(name):
    """Refuse names other than plain words.

    A name is used in tags, files, slurm.conf and command lines.
    """
    for old in ("cluster: demo", "name: ada", "{name: vision}", "  gpu:\n", "  spot:"):
        new = re.sub("demo|ada|vision|gpu|spot", lambda _: f'"{name}"', old)
        assert problems(edited(old, new))


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1, 2", 2), ("a: 1\n b: 2", 2), ("cluster: x\ncluster: y", 2), ("", 1), ("[1]", 1)],
)
def test_a_yaml_syntax_error_is_a_problem_with_a_line(text, line):
    """Report a YAML syntax error as one problem."""
    with pytest.raises(ConfigInvalid) as caught:
        parse(text + "\n")
    (problem,) = caught.value.problems
    assert problem.line <= line + 1
    assert "\n" not in problem.message


def test_a_missing_file_names_config_init(tmp_path):
    """Print the next step in the error."""
    with pytest.raises(ConfigNotFound) as caught:
        load(tmp_path / "none.yaml")
    assert "toolkit config init" in caught.value.next_step


def test_a_binary_file_is_a_problem(tmp_path):
    """Report a binary file as a problem, like any other mistake."""
    path = tmp_path / "cluster.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigInvalid):
        load(path)


@pytest.mark.parametrize(
    ("old", "new", "where", "expected"),
    [
        ("{pools: [gpu]}", "{pools: [gpu], policy: cheap}", "partitions.spot.policy", "spot-first"),
        (
            "{pools: [gpu]}",
            "{pools: [gpu], policy: on-demand-after 10}",
            "partitions.spot.policy",
            "on-demand-after 10m",
        ),
        (
            "{pools: [gpu]}",
            "{pools: [gpu], policy: on-demand-only}",
            "partitions.spot.policy",
            "pool gpu has no on-demand offering",
        ),
        (
            "count: 4",
            "count: 4\n    max_spot_share: 0.5",
            "pools.gpu.max_spot_share",
            "expected an on-demand offering",
        ),
        (
            "capacity: spot}",
            "capacity: capacity-block}",
            "pools.gpu.offerings[0]",
            "expected reservation",
        ),
        (
            "capacity: spot}",
            "capacity: on-demand, reservation: cr-0abc}",
            "pools.gpu.offerings[0]",
            "expected zone",
        ),
        (
            "capacity: spot}",
            "capacity: spot, zone: us-east-1a, reservation: cr-0abc}",
            "pools.gpu.offerings[0].reservation",
            "spot instances",
        ),
        (
            "capacity: spot}",
            "capacity: spot, zone: us-east-1f}",
            "pools.gpu.offerings[0].zone",
            "the pool has no zone",
        ),
        ("count: 4", "count: 4\n    static: 5", "pools.gpu.static", "at most 4, which is the pool"),
        ("count: 4", "count: 4\n    efa: 99", "pools.gpu.efa", "less than or equal to 32"),
    ],
)
def test_contradictory_capacity_settings_are_refused(old, new, where, expected):
    assert expected in problems(edited(old, new))[where][1]


def test_more_static_nodes_than_the_pool_has_are_refused():
    line, message = problems(edited("count: 4", "count: 4\n    static: 5"))["pools.gpu.static"]
    assert line == GOOD.partition("count: 4")[0].count("\n") + 2
    assert message == "expected at most 4, which is the pool's count, found 5"
    assert parse(edited("count: 4", "count: 4\n    static: 4")).pools["gpu"].static == 4


def test_an_offering_with_a_zone_is_in_this_zone_only():
    config = parse(edited("capacity: spot}", "capacity: spot, zone: us-east-1b}"))
    assert config.offering_zones("gpu", config.pools["gpu"].offerings[0]) == ("us-east-1b",)


@pytest.mark.parametrize("store", ["shared", "bucket", "s3://lab-data", "s3://lab-data/sets/v1"])
def test_datasets_are_stored_on_the_filesystem_or_in_a_bucket(store):
    assert (
        parse(GOOD + f"data: {{store: {store}, cache: /scratch, cache_gib: 200}}\n").data.store
        == store
    )
    assert parse(GOOD).data.cache_gib is None


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("{store: /home/x}", "data.store"),
        ("{store: 's3://UPPER'}", "data.store"),
        ("{cache: scratch}", "data.cache"),
        ("{cache: /a/../b}", "data.cache"),
        ("{cache_gib: 0}", "data.cache_gib"),
    ],
)
def test_an_invalid_store_or_cache_of_datasets_is_refused(setting, path):
    assert path in problems(GOOD + f"data: {setting}\n")


def test_checkpoints_are_copied_to_s3_only_if_configured():
    assert parse(GOOD).training.checkpoints is None
    for setting in ("bucket", "s3://lab-runs/ours"):
        assert (
            parse(GOOD + f"training: {{checkpoints: {setting}}}\n").training.checkpoints == setting
        )
    assert "training.checkpoints" in problems(GOOD + "training: {checkpoints: shared}\n")


@pytest.mark.parametrize(
    ("store", "checkpoints"),
    [
        ("s3://lab", "s3://lab/runs"),
        ("s3://lab/sets", "s3://lab"),
        ("s3://lab/x", "s3://lab/x/"),
        ("s3://lab/x/y", "s3://lab/x"),
    ],
)
def test_datasets_and_checkpoints_of_which_one_contains_the_other_are_refused(store, checkpoints):
    """Every job reads all that lies in the store."""
    text = GOOD + f"data: {{store: '{store}'}}\ntraining: {{checkpoints: '{checkpoints}'}}\n"
    line, message = problems(text)["training.checkpoints"]
    assert line == len(text.splitlines())
    assert f"apart from data.store {store}" in message


@pytest.mark.parametrize(
    ("store", "checkpoints"),
    [
        ("bucket", "bucket"),
        ("shared", "s3://lab"),
        ("s3://lab/sets", "s3://lab/runs"),
        ("s3://lab/run", "s3://lab/runs"),
        ("s3://lab", "s3://lab-runs"),
        ("bucket", "s3://bucket/data"),
    ],
)
def test_datasets_and_checkpoints_that_lie_apart_are_accepted(store, checkpoints):
    text = GOOD + f"data: {{store: '{store}'}}\ntraining: {{checkpoints: '{checkpoints}'}}\n"
    assert parse(text).training.checkpoints == checkpoints


BOUNDARY = "arn:aws:iam::123456789012:policy/limits"


def with_iam(boundary, path, prefix):
    """Return the good file with the three settings of IAM roles."""
    section = f"iam:\n  permissions_boundary: {boundary}\n  path: {path}\n  name_prefix: {prefix}\n"
    return GOOD + section


def test_the_settings_of_iam_roles_are_read():
    iam = parse(with_iam(BOUNDARY, "/clusters/", "hpc-")).iam
    assert (iam.permissions_boundary, iam.path, iam.name_prefix) == (BOUNDARY, "/clusters/", "hpc-")


@pytest.mark.parametrize(
    ("key", "values", "words"),
    [
        ("permissions_boundary", ("limits", "/a/", "hpc-"), "the ARN of a policy"),
        ("permissions_boundary", (BOUNDARY.replace("policy", "role"), "/a/", "x"), "the ARN of"),
        ("path", (BOUNDARY, "clusters", "hpc-"), "with a slash at both ends"),
        ("path", (BOUNDARY, "/a b/", "hpc-"), "with a slash at both ends"),
        ("name_prefix", (BOUNDARY, "/a/", "hpc/"), "up to 24 of"),
        ("name_prefix", (BOUNDARY, "/a/", "p" * 25), "up to 24 of"),
    ],
)
def test_a_mistake_in_the_settings_of_iam_roles_has_its_line(key, values, words):
    line, message = problems(with_iam(*values))[f"iam.{key}"]
    offset = ("permissions_boundary", "path", "name_prefix").index(key)
    assert line == GOOD.count("\n") + 2 + offset
    assert words in message


def test_a_prefix_that_makes_a_roles_name_too_long_is_refused_with_the_name():
    cluster = "c" * 31
    text = with_iam(BOUNDARY, "/", "p" * 24).replace("cluster: demo", f"cluster: {cluster}")
    _, message = problems(text)["iam.name_prefix"]
    assert f"{'p' * 24}{cluster}-us-east-1-compute" in message
    assert "IAM takes 64" in message
