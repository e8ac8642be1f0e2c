"""The base image of a cluster.

An instance of it must be able to become a node. The default depends on the profile.
"""

import pytest

from tests.unit.config.test_load import GOOD, problems
from toolkit.config import parse

DEBIAN = "images: {base: {owner: '136693071363', name: 'debian-13-amd64-*'}}\n"
LOCAL = "profile: local\n"


def test_the_default_base_image_on_aws_is_ubuntu_with_slurm_23_11():
    config = parse(GOOD)
    assert config.images.base.owner == "099720109477"
    assert "ubuntu-noble-24.04" in config.images.base.name
    assert config.slurm.version == "23.11"


def test_the_default_base_image_of_the_local_cloud_is_debian_with_slurm_24_11():
    config = parse(LOCAL + GOOD + "slurm: {suspend_time: 60}\nimages: {builder_type: c7i.large}\n")
    assert (config.images.base.owner, config.slurm.version) == ("136693071363", "24.11")
    assert (config.slurm.suspend_time, config.images.builder_type) == (60, "c7i.large")


def test_a_missing_owner_of_the_base_image_is_filled_from_the_profile():
    config = parse(LOCAL + GOOD + "images: {base: {name: debian-12-amd64-x}}\n")
    assert config.images.base.owner == "136693071363"


def test_debian_as_base_image_is_refused_on_aws():
    line, message = problems(GOOD + DEBIAN)["images.base"]
    assert line == GOOD.count("\n") + 1
    assert "Lustre" in message
    assert "ubuntu-noble-24.04" in message


def test_a_slurm_version_that_the_base_image_lacks_is_refused():
    line, message = problems(GOOD + "slurm: {version: '24.11'}\n")["slurm.version"]
    assert line == GOOD.count("\n") + 1
    assert 'expected "23.11"' in message


@pytest.mark.parametrize("owner", ["self", "123456789012"])
def test_an_own_base_image_may_have_any_supported_slurm_version(owner):
    text = f"images: {{base: {{owner: '{owner}', name: ours-*}}}}\nslurm: {{version: '25.05'}}\n"
    assert parse(GOOD + text).slurm.version == "25.05"


@pytest.mark.parametrize("mistake", ["images: none\n", "images: {base: 7}\n", "slurm: [1]\n"])
def test_a_malformed_section_is_a_problem(mistake):
    for profile in ("", LOCAL):
        assert problems(profile + GOOD + mistake)
