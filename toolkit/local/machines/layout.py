"""The paths of one local cloud on disk, and its name on the host."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from toolkit.local.machines.driver import check_instance_id
from toolkit.local.options import DEFAULT_STATE, STATE_VARIABLE


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories under one state directory; several may live on one host."""

    state: Path

    @classmethod
    def from_environment(cls, environment: dict[str, str] | None = None) -> Layout:
        """Return the layout TOOLKIT_LOCAL_DIR names, or the default one."""
        directory = (os.environ if environment is None else environment).get(STATE_VARIABLE)
        return cls(Path(directory or DEFAULT_STATE).absolute())

    @property
    def name(self) -> str:
        """Return a short name for namespaces and cgroups: `tkl-` and six hex."""
        return "tkl-" + hashlib.sha256(os.fsencode(self.state)).hexdigest()[:6]

    @property
    def instances(self) -> Path:
        """Return the folder of instances, a directory each: disk and plan."""
        return self.state / "instances"

    @property
    def images(self) -> Path:
        """Return the folder of images, a directory each."""
        return self.state / "images"

    @property
    def consoles(self) -> Path:
        """Return the folder of console logs, kept after the instance is gone."""
        return self.state / "console"

    @property
    def shared(self) -> Path:
        """Return the folder that neighbouring local clouds share.

        It has images, and downloads for them.
        """
        return self.state.parent / "toolkit-shared"

    @property
    def library(self) -> Path:
        """Return the folder of the shared images."""
        return self.shared / "images"

    @property
    def cache(self) -> Path:
        """Return the folder of downloaded packages; safe to delete at any time."""
        return self.shared / "cache"

    @property
    def filesystems(self) -> Path:
        """Return the folder of shared file systems (FSx), a directory each."""
        return self.state / "fsx"

    @property
    def volumes(self) -> Path:
        """Return the folder of EBS volumes and snapshots, a file each."""
        return self.state / "volumes"

    @property
    def run(self) -> Path:
        """Return the folder for this boot of the host only."""
        return self.state / "run"

    def instance(self, instance_id: str) -> Path:
        """Return the instance's directory."""
        return self.instances / check_instance_id(instance_id)

    def console(self, instance_id: str) -> Path:
        """Return the instance's console log."""
        return self.consoles / f"{check_instance_id(instance_id)}.log"

    def make(self) -> None:
        """Create missing folders, readable by root alone.

        Disks hold other people's files.
        """
        self.state.mkdir(parents=True, exist_ok=True)
        self.shared.mkdir(mode=0o700, exist_ok=True)
        for directory in (
            self.instances,
            self.images,
            self.library,
            self.consoles,
            self.cache,
            self.filesystems,
            self.volumes,
            self.run,
        ):
            directory.mkdir(mode=0o700, exist_ok=True)
