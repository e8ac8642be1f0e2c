"""The lock file beside cluster.yaml: what images are built of.

It has the base image of each region, and Slurm's packages for each system. With it a plan
is the same today and tomorrow, whatever others publish in between. `toolkit image check`
says what is newer, `toolkit image update` takes a newer base image, and `toolkit image
packages add` other packages.
"""

from __future__ import annotations

import io
import os
import re
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from toolkit.deploy import images, package_lock
from toolkit.errors import BaseImageMissing, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from mypy_boto3_ec2 import EC2Client

    from toolkit.config import ClusterConfig
    from toolkit.deploy.images import BaseImage, ImageInput
    from toolkit.render.slurm_packages import SlurmPackages

HEADER: Final = """\
# What this cluster's images are built of: base images, as `toolkit deploy` found them first, and
# Slurm's packages, if `toolkit image packages add` was used. Commit this file.
# `toolkit image check` says what is newer; `toolkit image update` takes a newer base image.
"""
_IMAGE_ID: Final = re.compile(r"ami-[0-9a-f]{8,17}")
_SECTIONS: Final = frozenset({"base_images", "slurm_packages"})


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


@dataclass(frozen=True, slots=True)
class LockedInput:
    """The content of a lock file."""

    pins: tuple[Pin, ...] = ()
    packages: tuple[SlurmPackages, ...] = field(default=())


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
        return next((pin for pin in self.read().pins if pin.is_for(config)), None)

    def packages_for(self, config: ClusterConfig) -> SlurmPackages | None:
        """Return Slurm's packages of this configuration, None for the system's own.

        Raises SlurmPackagesMissing where cluster.yaml wants packages that are not here.
        """
        return package_lock.row_for(config, self.read().packages, self.path.name)

    def write(self, config: ClusterConfig, base: BaseImage) -> None:
        """Pin the base image; everything else stays."""
        if config.profile == "local":
            return
        wanted, content = config.images.base, self.read()
        pin = Pin(config.aws.region, wanted.owner, wanted.name, base.id, base.name, base.created)
        others = (other for other in content.pins if not other.is_for(config))
        self._write(replace(content, pins=(*others, pin)))

    def write_packages(self, packages: SlurmPackages) -> None:
        """Name the packages of a system and architecture; everything else stays."""
        content = self.read()
        others = (
            row
            for row in content.packages
            if (row.system, row.architecture) != (packages.system, packages.architecture)
        )
        self._write(replace(content, packages=(*others, packages)))

    def read(self) -> LockedInput:
        """Return the content; without a file, nothing is locked."""
        try:
            return parse(self.path.read_text(), str(self.path))
        except FileNotFoundError:
            return LockedInput()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} can't be read: {error}") from error

    def _write(self, content: LockedInput) -> None:
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            draft.write_text(render(content))
            draft.replace(self.path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise ConfigError(
                f"{self.path} can't be written: {error.strerror}",
                next_step="make its folder writable, so that images can be locked",
            ) from error


def parse(text: str, source: str) -> LockedInput:
    """Parse a lock file.

    A damaged one locks nothing, so it is an error."""
    names = [attribute.name for attribute in fields(Pin)]
    try:
        document = _document(text)
        pins = tuple(
            Pin(**{name: item[name] for name in names}) for item in document.get("base_images", ())
        )
        packages = package_lock.parse(document.get("slurm_packages", []))
    except ValueError as error:
        raise _damaged(source, str(error)) from error
    except (YAMLError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(source, "it is not what `toolkit` writes") from error
    for pin in pins:
        if not all(isinstance(getattr(pin, name), str) for name in names):
            raise _damaged(source, "a value is not text in quotes")
        if not _IMAGE_ID.fullmatch(pin.id):
            raise _damaged(source, f"{pin.id!r} is no image id")
    return LockedInput(pins, packages)


def _document(text: str) -> dict[str, Any]:
    document = YAML(typ="safe").load(text)
    if not document or document.keys() - _SECTIONS:
        raise TypeError("unknown sections")
    return dict(document)


def render(content: LockedInput) -> str:
    """Return the file's text, which is the same for the same content."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096
    stream = io.StringIO()
    pins = sorted(content.pins, key=lambda pin: (pin.region, pin.owner, pin.pattern))
    rows = sorted(content.packages, key=lambda row: (row.system, row.architecture))
    sections = {
        "base_images": [asdict(pin) for pin in pins],
        "slurm_packages": [asdict(row) | {"packages": _entries(row)} for row in rows],
    }
    yaml.dump({name: items for name, items in sections.items() if items}, stream)
    return HEADER + stream.getvalue()


def _entries(row: SlurmPackages) -> list[dict[str, str]]:
    return [asdict(item) for item in sorted(row.packages, key=lambda item: item.name)]


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


def find_input(ec2: EC2Client, config: ClusterConfig, lock: ImageLock | None) -> ImageInput:
    """Return what the images are built of.

    Raises BaseImageMissing, or SlurmPackagesMissing.
    """
    packages = (
        lock.packages_for(config)
        if lock is not None
        else package_lock.row_for(config, (), "no lock file")
    )
    return images.ImageInput(find_base(ec2, config, lock), packages)


def _damaged(source: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{source} can't be used: {problem}",
        next_step="restore it from version control, or delete it to pin the newest image",
    )
