"""What instances are made of must be able to become a node, and is told by profile."""

import pytest

from tests.unit.config.test_load import GOOD, problems
from toolkit.config import parse

DEBIAN = "images: {base: {owner: '136693071363', name: 'debian-13-amd64-*'}}\n"
LOCAL = "profile: local\n"


def test_what_a_file_leaves_out_is_a_base_that_aws_has_every_driver_for():
    config = parse(GOOD)
    assert config.images.base.owner == "099720109477"
    assert "ubuntu-noble-24.04" in config.images.base.name
    assert config.slurm.version == "23.11"


def test_what_a_local_file_leaves_out_is_the_local_clouds_own_base():
    config = parse(LOCAL + GOOD + "slurm: {suspend_time: 60}\nimages: {builder_type: c7i.large}\n")
    assert (config.images.base.owner, config.slurm.version) == ("136693071363", "24.11")
    assert (config.slurm.suspend_time, config.images.builder_type) == (60, "c7i.large")


def test_half_a_base_is_filled_from_the_same_profile():
    config = parse(LOCAL + GOOD + "images: {base: {name: debian-12-amd64-x}}\n")
    assert config.images.base.owner == "136693071363"


def test_debian_is_refused_on_aws_where_the_file_names_it():
    line, message = problems(GOOD + DEBIAN)["images.base"]
    assert line == GOOD.count("\n") + 1
    assert "Lustre" in message
    assert "ubuntu-noble-24.04" in message


def test_a_slurm_that_the_base_does_not_have_is_refused():
    line, message = problems(GOOD + "slurm: {version: '24.11'}\n")["slurm.version"]
    assert line == GOOD.count("\n") + 1
    assert 'expected "23.11"' in message


@pytest.mark.parametrize("owner", ["self", "123456789012"])
def test_whoever_builds_a_base_of_their_own_says_what_is_in_it(owner):
    text = f"images: {{base: {{owner: '{owner}', name: ours-*}}}}\nslurm: {{version: '25.05'}}\n"
    assert parse(GOOD + text).slurm.version == "25.05"


@pytest.mark.parametrize("mistake", ["images: none\n", "images: {base: 7}\n", "slurm: [1]\n"])
def test_a_section_of_the_wrong_shape_is_told_as_such(mistake):
    for profile in ("", LOCAL):
        assert problems(profile + GOOD + mistake)
