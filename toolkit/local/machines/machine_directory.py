"""A machine's directory: its disk, the files the host gave it, and a record of what it is.

upper/ work/ root/   the overlay's parts; upper holds what the machine changed
seed/                the host's files, written afresh at every start
machine.json         image, environment (private: it may hold a proxy's password)
launch.json          the launcher's last plan
launch.ready         there when jobs may begin
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from toolkit.local.machines import seed_files
from toolkit.local.machines.errors import MachineError
from toolkit.local.machines.nspawn_command import Overlay

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from toolkit.local.machines.driver import MachineSpec
    from toolkit.local.machines.host_settings import HostSettings
    from toolkit.local.machines.image_store import ImageStore


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """A machine's origin, for a daemon that takes it over after a restart."""

    image_id: str
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Disk:
    """The directory of one machine."""

    home: Path

    @property
    def upper(self) -> Path:
        """Return the directory of the machine's changes."""
        return self.home / "upper"

    def prepare(self, spec: MachineSpec, images: ImageStore, host: HostSettings) -> Overlay:
        """Make a missing disk, write the seed, return the stack.

        The seed is written afresh; the stack is to be mounted.
        """
        old_record = self.record()
        record = MachineRecord(
            old_record.image_id if old_record else spec.image_id, seed_files.environment(spec, host)
        )
        layers = images.layers(record.image_id)
        for name, mode in (("upper", 0o755), ("work", 0o700), ("root", 0o755)):
            (self.home / name).mkdir(parents=True, exist_ok=True)
            (self.home / name).chmod(mode)
        seed_files.write(self.home / "seed", seed_files.files(spec, host))
        self.write("machine.json", asdict(record))
        lower = (self.home / "seed", *layers)
        return Overlay(lower, self.upper, self.home / "work", self.home / "root")

    def rebase_on(self, image_id: str) -> None:
        """Continue on top of an image that was made of this disk.

        Nothing is changed yet.
        """
        record = self.require_record()
        self.write("machine.json", asdict(MachineRecord(image_id, record.environment)))
        shutil.rmtree(self.home / "work", ignore_errors=True)

    def record(self) -> MachineRecord | None:
        """Return the record; None where there is no disk yet."""
        try:
            return MachineRecord(**json.loads((self.home / "machine.json").read_bytes()))
        except FileNotFoundError:
            return None

    def require_record(self) -> MachineRecord:
        """Return the record of a disk that has to be there."""
        record = self.record()
        if record is None:
            raise MachineError(f"{self.home.name} has no disk")
        return record

    def write(self, name: str, content: Mapping[str, object]) -> Path:
        """Write a private JSON file at once or not at all."""
        path = self.home / name
        scratch = path.with_suffix(".new")
        scratch.touch(mode=0o600)
        scratch.write_text(json.dumps(content))
        scratch.rename(path)
        return path

    def remove(self) -> None:
        """Delete all of it."""
        shutil.rmtree(self.home, ignore_errors=True)
