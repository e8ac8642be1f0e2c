"""A compute image of packages that the lock file names, on a booted builder.

The packages are Debian 13's own. So the image is like the cluster's, and what is tried is the way
from a folder to apt. The contract tests of deploy have the packages that a builder refuses.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from tests.slurm.conftest import toolkit
from toolkit.config import load
from toolkit.deploy import build, image_build_stack, image_lock, images
from toolkit.deploy.image_lock import ImageLock
from toolkit.deploy.session import Clients
from toolkit.local.machines import host_settings
from toolkit.local.machines.host_commands import RealHost
from toolkit.local.machines.layout import Layout
from toolkit.local.machines.shared_images import Library
from toolkit.output import PlainReporter
from toolkit.render.slurm_packages import DISTRIBUTION, NEEDED

if TYPE_CHECKING:
    from toolkit.deploy.images import ImageSpec

pytestmark = pytest.mark.machines
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
APT_SECONDS = 300
DEBIANS_SERIES = "24.11"


def debian_packages(folder: Path) -> Path:
    """Download Debian 13's packages with the host's apt, in own folders."""
    for name in ("state/lists/partial", "cache/archives/partial", "debs"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    host = host_settings.read_this_host(RealHost())
    (folder / "sources.list").write_text(
        f"deb [signed-by={KEYRING}] {host.mirror} trixie main\n"
        f"deb [signed-by={KEYRING}] {host.security_mirror} trixie-security main\n"
    )
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    for words in (["update"], ["download", *NEEDED[DISTRIBUTION]]):
        subprocess.run(
            ["apt-get", "-q", *options, *words],
            cwd=folder / "debs", check=True, capture_output=True, timeout=APT_SECONDS,
        )  # fmt: skip
    return folder / "debs"


class Locked:
    """A cluster.yaml beside the cluster's, with a lock file of its own."""

    def __init__(self, cluster, folder: Path) -> None:
        self.path = folder / "locked.yaml"
        settings = YAML(typ="rt").load(cluster.config.read_text())
        settings["slurm"] |= {"version": DEBIANS_SERIES, "packages": "locked"}
        with self.path.open("w") as file:
            YAML(typ="rt").dump(settings, file)
        self.debs = debian_packages(folder)
        toolkit("image", "packages", "add", "--config", str(self.path), str(self.debs))
        self.config = load(self.path)
        self.clients = Clients(self.config)
        self.report = PlainReporter()
        self.resources = image_build_stack.prepare_stack(self.config, self.clients, self.report)

    def spec(self) -> ImageSpec:
        """Return the compute image of the lock file."""
        source = self.input()
        (spec,) = (
            item for item in images.required_images(self.config, source) if item.kind == "compute"
        )
        return spec

    def input(self) -> image_lock.ImageInput:
        lock = ImageLock.beside(self.path)
        return image_lock.find_input(self.clients.client("ec2"), self.config, lock)

    def build(self, spec: ImageSpec) -> str:
        """Build the image and return its id."""
        builder = build.Builder(self.clients, self.config, self.resources, self.input().base)
        with self.report.phase("Building the compute image") as phase:
            return builder.build(spec, phase)


@pytest.fixture(scope="module")
def locked(cluster, tmp_path_factory):
    return Locked(cluster, tmp_path_factory.mktemp("locked"))


def test_an_image_is_built_of_packages_with_the_locked_hashes(locked, state):
    """Find the locked version installed, and no file of the build.

    An earlier test run of the same recipe may have built it, as all images of this tier.
    """
    ec2, spec = locked.clients.client("ec2"), locked.spec()
    known_image = images.find(ec2, [spec.name]).get(spec.name)
    image = known_image.id if known_image else locked.build(spec)
    row = ImageLock.beside(locked.path).read().packages[0]
    assert images.slurm_of(ec2, image) == row.release
    layout = Layout(Path(state))
    folders = (layout.images / image, Library(layout.library).directory(image))
    root = next(folder for folder in folders if folder.exists()) / "layer"
    paragraphs = (root / "var/lib/dpkg/status").read_text().split("\n\n")
    for name in ("slurmd", "slurm-client", "slurm-wlm-basic-plugins"):
        (paragraph,) = (item for item in paragraphs if item.startswith(f"Package: {name}\n"))
        assert f"\nVersion: {row.version}\n" in paragraph
    assert not (root / "var/lib/slurm-packages").exists()
    assert not (root / "etc/apt/sources.list.d/slurm-packages.list").exists()
