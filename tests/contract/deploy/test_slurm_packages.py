"""Slurm's packages from a folder to a builder: store, lock file, hashes, a builder's rights."""

from __future__ import annotations

import functools
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.fakes.debs import make_debs
from tests.patience import PROGRAM_SECONDS
from toolkit import cli
from toolkit.config import load
from toolkit.deploy import build, deb, image_build_stack, image_lock, images, names, package_store
from toolkit.deploy.image_lock import ImageLock
from toolkit.errors import SlurmPackagesMissing, SlurmPackagesUnfit
from toolkit.local.aws.iam.principals import role_of_profile
from toolkit.output import PlainReporter
from toolkit.render import image_vars

pytestmark = LEAVES_A_CLOUD
ROOT = Path(__file__).parents[3]
FETCH = ROOT / "ansible/roles/slurm_packages/files/fetch_packages.py"
VERSION = "25.11.8-1"
BASE, SLURM = 'name: "debian-13-amd64-*"', 'version: "24.11" # Debian 13'
HERE = "-".join(
    value.strip('"')
    for key in ("ID", "VERSION_ID")
    for line in Path("/etc/os-release").read_text().splitlines()
    for name, _, value in [line.partition("=")]
    if name == key
)


def toolkit(config, *words):
    return cli.run([*words, "--config", str(config.path)])


def lock_of(config):
    return ImageLock.beside(config.path)


@pytest.fixture
def debs(tmp_path):
    return make_debs(tmp_path / "debs", VERSION)


@pytest.fixture
def locked(config, debs, capsys):
    """A cluster.yaml with packages for this computer's own system."""
    config.edit(BASE, BASE + f", system: {HERE}")
    assert toolkit(config, "image", "packages", "add", str(debs)) == 0, capsys.readouterr().err
    output = capsys.readouterr().out
    assert f"Slurm {VERSION} for {HERE} amd64 in" in output
    assert 'set slurm: {packages: locked, version: "25.11"}' in output
    config.edit(SLURM, 'version: "25.11"\n  packages: locked')
    return config


def bucket_of(config):
    account = config.actor.clients.account
    return package_store.Bucket(
        config.actor.clients.client("s3"), names.images_bucket(config.config, account)
    )


def test_packages_are_uploaded_once_under_their_hashes_and_listed(locked, debs, capsys):
    row = lock_of(locked).read().packages[0]
    bucket = bucket_of(locked)
    for item in row.packages:
        key = f"packages/{item.sha256}/{item.file}"
        assert item.url == f"s3://{bucket.name}/{key}"
        assert bucket.read(key) == (debs / item.file).read_bytes()
    assert toolkit(locked, "image", "packages", "add", str(debs)) == 0
    assert f"0 of {len(row.packages)}" in capsys.readouterr().err, "nothing was uploaded again"
    assert toolkit(locked, "image", "packages", "list", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["used"] is True
    assert listed["packages"]["version"] == VERSION


def test_a_dry_run_uploads_nothing_and_writes_no_lock_file(config, debs, capsys):
    words = ("image", "packages", "add", "--dry-run", "--system", HERE, str(debs))
    assert toolkit(config, *words) == 0
    assert "would name Slurm" in capsys.readouterr().out
    assert not lock_of(config).path.exists()
    assert not bucket_of(config).exists()


def test_a_deploy_without_packages_for_its_system_makes_nothing(config, capsys):
    config.edit(SLURM, 'version: "25.11"\n  packages: locked')
    assert toolkit(config, "deploy") == 1
    assert "has no Slurm packages for debian-13 amd64" in capsys.readouterr().err
    assert not bucket_of(config).exists()


class BuilderRun:
    """The role's program, with the credentials that a builder's instance has."""

    def __init__(self, config, folder) -> None:
        self.config, self.folder = load(config.path), folder
        self.actor = config.actor
        clients = self.actor.clients
        resources = image_build_stack.prepare_stack(self.config, clients, PlainReporter())
        source = image_lock.find_input(clients.client("ec2"), self.config, lock_of(config))
        self.row = source.packages
        self.spec = images.required_images(self.config, source)[1]
        self.builder = build.Builder(clients, self.config, resources, source.base)
        self.bucket = resources.bucket

    def fetch(self, **changes):
        """Run the program as the role does."""
        instance = self.builder._launch(self.spec)
        cloud = self.actor.cloud
        cloud.machine_controller.tick()
        entry = cloud.tables.instances[instance]
        role = role_of_profile(str(entry.row.iam_instance_profile["Arn"]))
        given = cloud.sessions.of_instance(instance, entry.region, role, cloud.tables.wall())
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "AWS_ACCESS_KEY_ID": given.key,
            "AWS_SECRET_ACCESS_KEY": given.secret,
            "AWS_SESSION_TOKEN": given.token,
            "AWS_DEFAULT_REGION": self.config.aws.region,
            "AWS_ENDPOINT_URL": self.config.aws.endpoint_url,
            "TOOLKIT_IMAGES_BUCKET": self.bucket.name,
        }
        values = (
            json.loads(image_vars(self.config, "compute", self.row))["toolkit_slurm_packages"]
            | changes
        )
        return subprocess.run(
            [sys.executable, str(FETCH), str(self.folder)],
            input=json.dumps(values), env=environment, capture_output=True, text=True,
            timeout=PROGRAM_SECONDS, check=False,
        )  # fmt: skip


@pytest.fixture
def run(locked, tmp_path):
    return BuilderRun(locked, tmp_path / "slurm-packages")


def test_a_builder_gets_the_packages_and_an_index_for_apt(run):
    result = run.fetch()
    assert result.returncode == 0, result.stderr
    files = {path.name for path in run.folder.iterdir()}
    assert files == {item.file for item in run.row.packages} | {"Packages", "Release"}
    index = (run.folder / "Packages").read_text()
    for item in run.row.packages:
        assert f"Package: {item.name}\nVersion: {VERSION}\n" in index
        assert f"Filename: ./{item.file}\n" in index
    assert "Origin: slurm-packages\n" in (run.folder / "Release").read_text()


def test_a_package_that_was_replaced_in_the_bucket_is_refused_before_anything_is_installed(run):
    """Replace the object as somebody with rights on the bucket can."""
    item = run.row.packages[-1]
    run.bucket.write(names.package(item.sha256, item.file), b"another package")
    result = run.fetch()
    assert result.returncode == 1
    assert f"{item.file} is refused, and nothing was installed" in result.stderr
    assert item.sha256 in result.stderr
    assert not run.folder.exists()


def test_a_package_that_is_gone_from_the_bucket_is_named(run):
    item = run.row.packages[0]
    run.bucket.delete(names.package(item.sha256, item.file))
    result = run.fetch()
    assert result.returncode == 1
    assert f"{item.file} is missing: run `toolkit image packages add`" in result.stderr
    assert not run.folder.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"system": "ubuntu-24.04"}, "are for ubuntu-24.04 amd64, and the base image is "),
        ({"architecture": "arm64"}, f"are for {HERE} arm64"),
        ({"version": "25.11.2-1"}, "is not of version 25.11.2-1"),
    ],
)
def test_packages_of_another_system_or_version_are_refused(run, changes, words):
    result = run.fetch(**changes)
    assert result.returncode == 1
    assert words in result.stderr
    assert not run.folder.exists()


def test_a_build_takes_packages_from_a_store_of_the_sites_own(config, debs, capsys, tmp_path):
    """Copy them to the bucket of builds, which alone builders may read."""
    s3 = config.actor.clients.client("s3")
    s3.create_bucket(Bucket="site-store")
    config.edit(BASE, BASE + f", system: {HERE}")
    config.edit("images:\n", "images:\n  package_store: s3://site-store/slurm\n")
    assert toolkit(config, "image", "packages", "add", str(debs)) == 0, capsys.readouterr().err
    config.edit(SLURM, 'version: "25.11"\n  packages: locked')
    row = lock_of(config).read().packages[0]
    keys = [names.package(item.sha256, item.file) for item in row.packages]
    assert [item.url for item in row.packages] == [f"s3://site-store/slurm/{key}" for key in keys]
    bucket = bucket_of(config)
    assert [bucket.has(key) for key in keys] == [False] * len(keys)
    assert toolkit(config, "image", "build") == 0, capsys.readouterr().err
    assert [bucket.has(key) for key in keys] == [True] * len(keys)
    s3.put_object(Bucket="site-store", Key=f"slurm/{keys[0]}", Body=b"another package")
    bucket.delete(keys[0])
    store = package_store.PackageStore(config.actor.clients, bucket)
    with (
        PlainReporter().phase("Caching") as phase,
        pytest.raises(SlurmPackagesUnfit, match="is refused: its SHA-256 is"),
    ):
        store.cache(row, phase)
    assert not bucket.has(keys[0])


@pytest.fixture
def https_store(debs, tmp_path, monkeypatch):
    """A folder behind https:// that somebody else fills, and its address."""
    folder = tmp_path / "store"
    shutil.copytree(debs, folder)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    argv += ["-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "1"]
    argv += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(argv, check=True, capture_output=True)
    handler = functools.partial(QuietHandler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield folder, f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class QuietHandler(SimpleHTTPRequestHandler):
    """A file server that writes no log."""

    def log_message(self, *_):
        pass


def test_a_store_behind_https_is_compared_and_never_filled(debs, https_store):
    folder, address = https_store
    store = package_store.PackageStore(None, None)
    item = deb.read_folder(debs)[0]
    url = f"{address}/{item.file}"
    assert package_store.fetch_https(url) == (debs / item.file).read_bytes()
    assert not store.add(item, url)
    (folder / item.file).write_bytes(b"another package")
    with pytest.raises(SlurmPackagesUnfit, match="is refused: its SHA-256 is"):
        store.add(item, url)
    (folder / item.file).unlink()
    with pytest.raises(SlurmPackagesMissing, match="can't be fetched"):
        store.add(item, url)


def test_another_series_comes_with_a_new_head_node_or_not_at_all(config, capsys):
    """Keep slurm.conf and nodes from a series that slurmctld can't read."""
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    config.edit(SLURM, 'version: "25.05"')
    assert toolkit(config, "plan") == 2
    output = capsys.readouterr().out
    assert "~ Slurm 24.11 → 25.05: slurmdbd, then slurmctld, then nodes" in output
    assert "`toolkit deploy` would stop: the head node runs Slurm 24.11" in output
    for words in (("deploy", "--yes"), ("apply",)):
        assert toolkit(config, *words) == 1
        assert "the head node runs Slurm 24.11" in capsys.readouterr().err
    assert toolkit(config, "deploy", "--replace-head", "--yes") == 0, capsys.readouterr().err
    assert toolkit(config, "plan") == 0
    config.edit('version: "25.05"', 'version: "24.11"')
    assert toolkit(config, "deploy", "--replace-head", "--yes") == 1
    assert "no way back" in capsys.readouterr().err
