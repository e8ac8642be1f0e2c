"""The lock file pins one base image for each region and base."""

from dataclasses import replace

import pytest

from tests.unit.deploy.samples import example
from toolkit.deploy.image_lock import HEADER, ImageLock, find_base, parse, render
from toolkit.deploy.images import BaseImage
from toolkit.errors import BaseImageMissing, ConfigError

CONFIG = example("aws")
FIRST = BaseImage("ami-0aaaaaaaa", "ubuntu-1", "/dev/sda1", "2026-11-01T00:00:00.000Z")
NEWER = BaseImage("ami-0bbbbbbbb", "ubuntu-2", "/dev/sda1", "2026-11-02T00:00:00.000Z")


class Ec2:
    """EC2 with these base images, some of them deprecated."""

    def __init__(self, *images, deprecated=()) -> None:
        self.images, self.deprecated = images, deprecated

    def describe_images(self, *, Owners, Filters, IncludeDeprecated=False):  # noqa: N803  # boto3's names
        assert Owners == [CONFIG.images.base.owner]
        wanted = {entry["Name"]: entry["Values"] for entry in Filters}
        return {
            "Images": [
                {
                    "ImageId": image.id,
                    "Name": image.name,
                    "RootDeviceName": image.root_device,
                    "CreationDate": image.created,
                }
                for image in self.images
                if image.id in wanted.get("image-id", [image.id])
                and (IncludeDeprecated or image not in self.deprecated)
            ]
        }


@pytest.fixture
def lock(tmp_path):
    return ImageLock.beside(tmp_path / "cluster.yaml")


def test_the_file_lies_beside_the_cluster_yaml(lock):
    assert lock.path.name == "cluster.lock.yaml"


def test_the_pinned_image_is_used_although_a_newer_one_exists(lock):
    """Use it also when its owner has deprecated it."""
    assert find_base(Ec2(FIRST, NEWER), CONFIG, lock) == NEWER
    lock.write(CONFIG, FIRST)
    assert find_base(Ec2(FIRST, NEWER, deprecated=[FIRST]), CONFIG, lock) == FIRST


@pytest.mark.parametrize("left", [(NEWER,), (replace(FIRST, name="another"), NEWER)])
def test_a_pinned_image_that_is_gone_is_an_error(lock, left):
    """Never take another image in silence."""
    lock.write(CONFIG, FIRST)
    with pytest.raises(BaseImageMissing, match="ami-0aaaaaaaa") as caught:
        find_base(Ec2(*left), CONFIG, lock)
    assert "toolkit image update" in caught.value.next_step


def test_a_region_or_base_of_its_own_has_a_pin_of_its_own(lock):
    lock.write(CONFIG, FIRST)
    elsewhere = CONFIG.model_copy(
        update={"aws": CONFIG.aws.model_copy(update={"region": "eu-west-1"})}
    )
    assert lock.pin_for(elsewhere) is None
    lock.write(elsewhere, NEWER)
    lock.write(CONFIG, NEWER)
    assert [pin.region for pin in lock.read().pins] == ["eu-west-1", "us-east-1"]
    assert lock.pin_for(CONFIG).id == NEWER.id


def test_the_local_cloud_pins_nothing(lock):
    """Leave it to the base image of this computer."""
    lock.write(example("local"), FIRST)
    assert not lock.path.exists()


def test_the_file_has_the_same_text_for_the_same_pins(lock):
    lock.write(CONFIG, FIRST)
    text = lock.path.read_text()
    assert text.startswith(HEADER)
    assert render(parse(text, "")) == text
    assert list(lock.path.parent.iterdir()) == [lock.path]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "base_image: []",
        "base_images: [{}]",
        "base_images: 7",
        "a: [",
        "base_images: [{region: no}]",
    ],
)
def test_a_damaged_file_is_an_error_and_no_missing_pin(lock, text):
    """A missing pin would mean the newest image, without a word."""
    lock.path.write_text(text)
    with pytest.raises(ConfigError, match=r"cluster\.lock\.yaml"):
        lock.pin_for(CONFIG)


@pytest.mark.parametrize(("old", "new"), [("ami-0aaaaaaaa", "ami-x y"), ("ubuntu-1", "1e3")])
def test_a_value_that_is_no_image_is_an_error(lock, old, new):
    lock.write(CONFIG, FIRST)
    lock.path.write_text(lock.path.read_text().replace(old, new))
    with pytest.raises(ConfigError):
        lock.pin_for(CONFIG)


def test_a_folder_that_takes_no_file_is_named(tmp_path):
    lock = ImageLock.beside(tmp_path / "absent" / "cluster.yaml")
    with pytest.raises(ConfigError, match="can't be written"):
        lock.write(CONFIG, FIRST)
