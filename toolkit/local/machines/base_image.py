"""The base image: a Debian tree made once for each recipe and kept.

Built in a directory of its own and moved into the store when it is whole. The tree is the upper
directory of an overlay, because an overlay can leave out fsync, half of what dpkg does otherwise.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.local.machines import base_image_recipe, nspawn_command, seed_files
from toolkit.local.machines.build_step import BuildStep
from toolkit.local.machines.errors import BaseBuildFailed, ImageMissing
from toolkit.local.machines.image_store import Image
from toolkit.local.machines.python_copy import CHECK, TARGET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolkit.local.machines.cgroups import Groups
    from toolkit.local.machines.host_settings import HostSettings
    from toolkit.local.machines.image_store import ImageStore
    from toolkit.local.machines.layout import Layout
    from toolkit.local.machines.python_copy import Interpreter
    from toolkit.local.machines.shared_images import Library

GROUP = "base-build"
_CACHE = Path("var/cache/apt/archives")
_TEMPORARY_FILES = (
    "usr/sbin/policy-rc.d",
    "etc/apt/apt.conf.d/90toolkit-host",
    "etc/apt/auth.conf.d/toolkit-host.conf",
    "etc/resolv.conf",
)
_EMPTIED_DIRECTORIES = ("var/lib/apt/lists", "var/cache/apt", "var/log", "var/cache/debconf", "tmp")
_PROGRESS_LINE = re.compile(
    r"^(?:I: )?(Retrieving|Validating|Extracting|Configuring|Unpacking|Setting up|"
    r"Get:\d+) (\S+(?: \S+)?)"
)


@dataclass(frozen=True, slots=True)
class BaseBuilder:
    """Builds the base of this host's recipe."""

    layout: Layout
    store: ImageStore
    library: Library
    groups: Groups
    host: HostSettings
    interpreter: Interpreter

    @property
    def image_id(self) -> str:
        """Return the id that the base has or will have."""
        return base_image_recipe.image_id(self.host, self.interpreter)

    def build(self, report: Callable[[str, str], None]) -> Image:
        """Return the base image, built if it isn't in the store.

        `report(phase, detail)` is called several times a second while it builds. Raises
        BaseBuildFailed with the phase and the end of the output.
        """
        with contextlib.suppress(ImageMissing):
            image = self.store.get(self.image_id)
            self.store.share(image.id)
            return image
        if self.library.is_locked(self.image_id):
            report("wait", "for another local cloud, which builds it")
        with self.library.locked(self.image_id):
            with contextlib.suppress(ImageMissing):
                return self.store.get(self.image_id)
            return self._build_image(report)

    def _build_image(self, report: Callable[[str, str], None]) -> Image:
        work = self.layout.run / "base"
        self.discard(work)
        try:
            self._build_in(work, report)
            image = Image(
                self.image_id, base_image_recipe.IMAGE_NAME, parent=None, created=time.time()
            )
            self.store.adopt(image, work / "upper")
            self.store.share(image.id)
        finally:
            self.discard(work)
        return self.store.get(self.image_id)

    def discard(self, work: Path) -> None:
        """End and remove an unfinished build."""
        self.groups.kill(GROUP)
        self.groups.remove(GROUP)
        shutil.rmtree(work, ignore_errors=True)

    def _build_in(self, work: Path, report: Callable[[str, str], None]) -> None:
        for name in ("lower", "upper", "work", "root"):
            (work / name).mkdir(parents=True)
            (work / name).chmod(0o755)
        tree = work / "upper"
        self._debootstrap(work, report)
        report("configure", "apt, trust and our files")
        self._prepare(tree)
        self._packages(work, report)
        report("python", f"copying {self.interpreter.prefix}")
        self.interpreter.copy(tree)
        self._run_in_tree(work, "python", ["/usr/sbin/ldconfig"], report)
        for words in (["-c", CHECK], ["-m", "pip", "--version"]):
            python = f"/{TARGET}/bin/python3"
            self._run_in_tree(work, "python", [python, "-I", *words], report)
        report("finish", "switching units off")
        _finish(tree)

    def _debootstrap(self, work: Path, report: Callable[[str, str], None]) -> None:
        cache = self._cache("debootstrap")
        argv = [
            "debootstrap",
            "--variant=minbase",
            f"--cache-dir={cache}",
            f"--include={','.join(base_image_recipe.FIRST_PACKAGES)}",
            base_image_recipe.SUITE,
            str(work / "root"),
            self.host.mirror,
        ]
        self._run_step(work, "debootstrap", argv, report, self._download_environment())

    def _packages(self, work: Path, report: Callable[[str, str], None]) -> None:
        update = ["/usr/bin/apt-get", "-q", "update"]
        self._run_in_tree(work, "packages", update, report)
        install = ["/usr/bin/apt-get", "-q", "-y", "--no-install-recommends", "install"]
        packages = (*base_image_recipe.PACKAGES, *base_image_recipe.LIBRARIES)
        self._run_in_tree(work, "packages", [*install, *packages], report)
        if self.host.local_cas:
            self._run_in_tree(work, "packages", ["/usr/sbin/update-ca-certificates"], report)

    def _prepare(self, tree: Path) -> None:
        """Put our files, and for the build the host's mirror access."""
        for name, (body, mode) in base_image_recipe.files().items():
            _write_file(tree, name, body, mode)
        for name, body in self.host.local_cas.items():
            _write_file(tree, f"usr/local/share/ca-certificates/{name}", body, 0o644)
        (tree / "etc/apt/sources.list").unlink(missing_ok=True)
        text = base_image_recipe.sources(self.host)
        _write_file(tree, "etc/apt/sources.list.d/debian.sources", text.encode(), 0o644)
        options = seed_files.apt_conf(self.host.apt_options)
        _write_file(tree, "etc/apt/apt.conf.d/90toolkit-host", options, 0o600)
        _write_file(tree, "etc/apt/auth.conf.d/toolkit-host.conf", self.host.apt_auth, 0o600)
        _write_file(tree, "etc/resolv.conf", self.host.resolv_conf, 0o644)
        if self.host.ca_bundle:  # until update-ca-certificates has made the tree's own
            _write_file(tree, "etc/ssl/certs/ca-certificates.crt", self.host.ca_bundle, 0o644)

    def _run_in_tree(
        self, work: Path, phase: str, argv: list[str], report: Callable[[str, str], None]
    ) -> None:
        binds = {self._cache("apt"): Path("/") / _CACHE}
        command = nspawn_command.run_argv(work / "root", binds, argv)
        self._run_step(work, phase, command, report, self._download_environment())

    def _run_step(
        self,
        work: Path,
        phase: str,
        argv: list[str],
        report: Callable[[str, str], None],
        environment: Mapping[str, str],
    ) -> None:
        overlay = nspawn_command.Overlay(
            (work / "lower",), work / "upper", work / "work", work / "root"
        )
        path = work / "launch.json"
        launch_plan = nspawn_command.launch_plan(
            argv,
            overlay=overlay,
            cgroups=self.groups.make(GROUP),
            with_parent=True,
            environment=environment,
        )
        path.write_text(json.dumps(launch_plan))

        def report_progress(line: str) -> None:
            match = _PROGRESS_LINE.match(line)
            if match:
                report(phase, f"{match[1]} {match[2]}")

        step = BuildStep(path)
        returncode = step.run(report_progress)
        if returncode != 0:
            raise BaseBuildFailed(
                f"building the base image failed in phase {phase!r} (exit {returncode}):\n"
                f"{step.tail}\nCheck the mirror {self.host.mirror} and the host's proxies."
            )

    def _download_environment(self) -> dict[str, str]:
        variables = dict(self.host.proxies)
        for key, value in self.host.apt_options:
            if key.lower() in {"acquire::http::proxy", "acquire::https::proxy"}:
                variables.setdefault(f"{key.split('::')[1].lower()}_proxy", value)
        return variables

    def _cache(self, name: str) -> Path:
        path = self.layout.cache / name
        (path / "partial").mkdir(parents=True, exist_ok=True)
        return path


def _write_file(tree: Path, name: str, body: bytes, mode: int) -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(body)
    path.chmod(mode)


def _finish(tree: Path) -> None:
    """Make the tree final.

    Switch off slow units, remove the build's own files, and let no boot count as the
    first.
    """
    for unit in base_image_recipe.MASKED_UNITS:
        link = tree / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    for name in _TEMPORARY_FILES:
        (tree / name).unlink(missing_ok=True)
    for name in _EMPTIED_DIRECTORIES:
        for path in (tree / name).rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.unlink()
    (tree / "etc/resolv.conf").touch()
    (tree / "etc/machine-id").write_text("")  # every machine gets its own
    (tree / "var/lib/dbus/machine-id").unlink(missing_ok=True)  # systemd would take this one
    default = tree / "etc/systemd/system/default.target"
    default.unlink(missing_ok=True)
    default.symlink_to("/usr/lib/systemd/system/multi-user.target")
    for name in ("etc/.updated", "var/.updated"):  # or ConditionNeedsUpdate= runs at every boot
        (tree / name).touch()
        os.utime(tree / name)
