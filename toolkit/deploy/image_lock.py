"""The lock file beside cluster.yaml: the base image that each region's images are built on.

With it a plan is the same today and tomorrow, whatever the owner publishes in between.
`toolkit image check` says what is newer, and `toolkit image update` takes it.
"""

from __future__ import annotations

import io
import os
import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from toolkit.deploy import images
from toolkit.errors import BaseImageMissing, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from mypy_boto3_ec2 import EC2Client

    from toolkit.config import ClusterConfig
    from toolkit.deploy.images import BaseImage

HEADER: Final = """\
# The base images of this cluster, as `toolkit deploy` found them first. Commit this file.
# `toolkit image check` says what is newer; `toolkit image update` takes it.
"""
_IMAGE_ID: Final = re.compile(r"ami-[0-9a-f]{8,17}")


@dataclass(frozen=True, slots=True)
class Pin:
    """The image that one region uses for one `images.base`."""

    region: str
    owner: str
    pattern: str  # images.base.name
    id: str
    name: str
    created: str

    def is_for(self, config: ClusterConfig) -> bool:
        """Return whether this is the pin of the file's region and base."""
        base = config.images.base
        place = (config.aws.region, base.owner, base.name)
        return (self.region, self.owner, self.pattern) == place


class ImageLock:
    """The lock file of one cluster.yaml."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def beside(cls, config_file: Path) -> ImageLock:
        """Return the lock file of a cluster.yaml: `cluster.lock.yaml` beside it."""
        return cls(config_file.with_name(f"{config_file.stem}.lock.yaml"))

    def pin_for(self, config: ClusterConfig) -> Pin | None:
        """Return the pin of this configuration.

        The local cloud has none: its base image is made from this computer.
        """
        if config.profile == "local":
            return None
        return next((pin for pin in self._pins() if pin.is_for(config)), None)

    def write(self, config: ClusterConfig, base: BaseImage) -> None:
        """Pin the base image; pins of other regions and bases stay."""
        if config.profile == "local":
            return
        wanted = config.images.base
        pin = Pin(config.aws.region, wanted.owner, wanted.name, base.id, base.name, base.created)
        pins = [*(other for other in self._pins() if not other.is_for(config)), pin]
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            draft.write_text(render(pins))
            draft.replace(self.path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise ConfigError(
                f"{self.path} can't be written: {error.strerror}",
                next_step="make its folder writable, so that the base image can be pinned",
            ) from error

    def _pins(self) -> tuple[Pin, ...]:
        try:
            return parse(self.path.read_text(), str(self.path))
        except FileNotFoundError:
            return ()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} can't be read: {error}") from error


def parse(text: str, source: str) -> tuple[Pin, ...]:
    """Parse a lock file.

    A damaged one pins nothing, so it is an error."""
    names = [field.name for field in fields(Pin)]
    try:
        document = YAML(typ="safe").load(text)
        pins = tuple(
            Pin(**{name: item[name] for name in names}) for item in document["base_images"]
        )
    except (YAMLError, KeyError, TypeError) as error:
        raise _damaged(source, "it is not what `toolkit deploy` writes") from error
    for pin in pins:
        if not all(isinstance(getattr(pin, name), str) for name in names):
            raise _damaged(source, "a value is not text in quotes")
        if not _IMAGE_ID.fullmatch(pin.id):
            raise _damaged(source, f"{pin.id!r} is no image id")
    return pins


def render(pins: list[Pin]) -> str:
    """Return the file's text, which is the same for the same pins."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096
    stream = io.StringIO()
    ordered = sorted(pins, key=lambda pin: (pin.region, pin.owner, pin.pattern))
    yaml.dump({"base_images": [asdict(pin) for pin in ordered]}, stream)
    return HEADER + stream.getvalue()


def find_base(ec2: EC2Client, config: ClusterConfig, lock: ImageLock | None) -> BaseImage:
    """Return the pinned base image, or the newest without a pin.

    Raises BaseImageMissing also when the pinned one is gone.
    """
    pin = lock.pin_for(config) if lock is not None else None
    if lock is None or pin is None:
        return images.find_base(ec2, config)
    base = images.base_by_id(ec2, pin.owner, pin.id)
    if base is None or base.name != pin.name:
        raise BaseImageMissing(
            f"base image {pin.id} ({pin.name}), which {lock.path} names, is gone in {pin.region}",
            next_step="`toolkit image update` pins the newest one",
        )
    return base


def _damaged(source: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{source} can't be used: {problem}",
        next_step="restore it from version control, or delete it to pin the newest image",
    )
