"""The base image of a cluster.

An instance of it must be able to become a node. The default depends on the profile.
"""

import pytest

from tests.unit.config.test_load import GOOD, problems
from toolkit.config import parse
from toolkit.config.base_image import base_system

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


LOCKED = "slurm: {version: '25.11', packages: locked}\n"


def test_locked_packages_may_be_of_any_supported_version():
    config = parse(GOOD + LOCKED)
    assert (config.slurm.version, config.slurm.packages) == ("25.11", "locked")


@pytest.mark.parametrize(
    ("name", "system", "expected"),
    [
        ("debian-13-amd64-*", None, "debian-13"),
        ("ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*", None, "ubuntu-24.04"),
        ("ours-*", None, ""),
        ("ours-*", "ubuntu-24.04", "ubuntu-24.04"),
    ],
)
def test_the_system_is_in_the_name_of_the_base_image_or_given(name, system, expected):
    assert base_system(name, system) == expected


def test_locked_packages_need_the_system_of_a_base_image_of_ones_own():
    own = "images: {base: {owner: self, name: ours-*}}\n"
    _, message = problems(GOOD + own + LOCKED)["images.base"]
    assert "expected system" in message
    own = "images: {base: {owner: self, name: ours-*, system: ubuntu-24.04}}\n"
    assert parse(GOOD + own + LOCKED).images.base.system == "ubuntu-24.04"


@pytest.mark.parametrize("store", ["http://host/folder", "s3://x", "file:///x", "bucket"])
def test_a_package_store_is_a_bucket_or_behind_https(store):
    _, message = problems(GOOD + f"images: {{package_store: '{store}'}}\n")["images.package_store"]
    assert "expected s3://bucket/prefix or https://host/folder" in message
