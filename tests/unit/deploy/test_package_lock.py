"""Slurm's packages in the lock file, and the folder of which a row is made."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.debs import SCHEDMD_NAMES, make_deb, make_debs
from tests.unit.deploy.samples import example
from toolkit.deploy import deb, package_folder, package_store
from toolkit.deploy.image_lock import HEADER, ImageLock, LockedInput, parse, render
from toolkit.deploy.images import BaseImage
from toolkit.errors import ConfigError, SlurmPackagesMissing, SlurmPackagesUnfit
from toolkit.render.slurm_packages import release_of

VERSION = "25.11.8-1"
BASE = BaseImage("ami-0aaaaaaaa", "ubuntu-1", "/dev/sda1", "2026-11-01T00:00:00.000Z")


def row_of(folder, system="debian-13"):
    return package_folder.lock_row(
        deb.read_folder(folder), str(folder), system, lambda item: f"s3://store/{item.file}"
    )


@pytest.fixture(scope="module")
def row(tmp_path_factory):
    return row_of(make_debs(tmp_path_factory.mktemp("debs"), VERSION))


@pytest.fixture
def lock(tmp_path):
    return ImageLock.beside(tmp_path / "cluster.yaml")


def config(packages="locked", version="25.11", name="local"):
    base = example(name)
    slurm = base.slurm.model_copy(update={"packages": packages, "version": version})
    return base.model_copy(update={"slurm": slurm})


def test_the_row_of_a_folder_has_each_package_with_its_hash(row):
    assert (row.version, row.release, row.series) == (VERSION, "25.11.8", "25.11")
    assert (row.packaging, row.missing) == ("schedmd", ())
    assert [item.name for item in row.packages] == sorted(SCHEDMD_NAMES)
    assert {len(item.sha256) for item in row.packages} == {64}
    assert row.packages[0].file == f"{row.packages[0].name}_{VERSION}_amd64.deb"


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("25.11.8-1", "25.11.8"),
        ("24.11.5-4+deb13u1", "24.11.5"),
        ("1:25.11.2-1ubuntu1", "25.11.2"),
        ("26.05.4~rc1-1", "26.05.4"),
    ],
)
def test_slurms_own_version_is_read_from_a_packages_version(version, release):
    assert release_of(version) == release


def test_packages_of_debug_symbols_are_left_out(tmp_path):
    folder = make_debs(tmp_path / "debs", VERSION)
    make_deb(folder, "slurm-smd-slurmd-dbgsym", VERSION)
    assert "slurm-smd-slurmd-dbgsym" not in {item.name for item in row_of(folder).packages}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: make_deb(folder, "slurm-smd-sackd", "25.11.2-1"), "packages of 2 versions"),
        (lambda folder: make_deb(folder, "slurm-smd-sackd", VERSION, "arm64"), "for arm64"),
        (
            lambda folder: make_deb(folder, "slurm-smd-sackd", VERSION).rename(folder / "x.deb"),
            f"x.deb: dpkg calls it slurm-smd-sackd_{VERSION}_amd64.deb",
        ),
        (lambda folder: (folder / "bad.deb").write_bytes(b"no package"), "is no Debian package"),
        (
            lambda folder: (folder / f"slurm-smd-slurmd_{VERSION}_amd64.deb").unlink(),
            "lacks slurm-smd-slurmd",
        ),
    ],
)
def test_a_folder_that_can_not_be_installed_is_refused_with_the_file(tmp_path, spoil, words):
    folder = make_debs(tmp_path / "debs", VERSION)
    spoil(folder)
    with pytest.raises(SlurmPackagesUnfit, match=words.replace("+", r"\+")):
        row_of(folder)


def test_a_version_that_the_toolkit_does_not_know_is_refused(tmp_path):
    with pytest.raises(SlurmPackagesUnfit, match=r"Slurm 27\.05 is not supported"):
        row_of(make_debs(tmp_path / "debs", "27.05.0-1"))


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(SlurmPackagesUnfit, match=r"has no \.deb files"):
        row_of(tmp_path)


def test_packages_and_base_images_stay_when_the_other_is_written(lock, row):
    """Keep both sections of the one file, in either order of writing."""
    aws = example("aws")
    lock.write(aws, BASE)
    lock.write_packages(row)
    lock.write(aws, replace(BASE, id="ami-0bbbbbbbb"))
    other = replace(row, system="ubuntu-24.04")
    lock.write_packages(other)
    content = lock.read()
    assert [pin.id for pin in content.pins] == ["ami-0bbbbbbbb"]
    assert content.packages == (row, other)
    text = lock.path.read_text()
    assert text.startswith(HEADER)
    assert render(parse(text, "")) == text


def test_newer_packages_take_the_place_of_older_ones(lock, row):
    lock.write_packages(replace(row, version="25.11.2-1"))
    lock.write_packages(row)
    assert lock.read().packages == (row,)


def test_the_system_of_the_base_image_chooses_the_row(lock, row):
    lock.write_packages(row)
    lock.write_packages(replace(row, system="ubuntu-24.04"))
    assert lock.packages_for(config()).system == "debian-13"
    assert lock.packages_for(config(name="aws")).system == "ubuntu-24.04"


def test_without_locked_packages_the_systems_own_are_used(lock, row):
    lock.write_packages(row)
    assert lock.packages_for(config("system", "24.11")) is None


def test_a_system_without_a_row_is_refused_with_the_way_to_one(lock, row):
    lock.write_packages(row)
    with pytest.raises(SlurmPackagesMissing, match=r"for ubuntu-24\.04 amd64") as caught:
        lock.packages_for(config(name="aws"))
    assert "toolkit image packages add" in caught.value.next_step


def test_packages_of_another_series_than_cluster_yamls_are_refused(lock, row):
    """Never install a Slurm for which slurm.conf is not written."""
    lock.write_packages(row)
    with pytest.raises(SlurmPackagesMissing, match=r"slurm\.version 24\.11") as caught:
        lock.packages_for(config(version="24.11"))
    assert 'set slurm.version to "25.11"' in caught.value.next_step


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sha256", "0" * 63),
        ("url", "http://store.example.com/x.deb"),
        ("url", "file:///etc/shadow"),
        ("file", "../../etc/x.deb"),
        ("name", "-o Dpkg::Options"),
    ],
)
def test_a_hostile_row_is_an_error(lock, row, key, value):
    """Let nothing hostile into a path, a URL or an argument."""
    package = replace(row.packages[0], **{key: value})
    lock.path.write_text(
        render(LockedInput(packages=(replace(row, packages=(package, *row.packages[1:])),)))
    )
    with pytest.raises(ConfigError, match=r"cluster\.lock\.yaml"):
        lock.read()


@pytest.mark.parametrize(("key", "value"), [("system", "debian"), ("version", "newest")])
def test_a_row_for_no_system_or_version_is_an_error(lock, row, key, value):
    lock.path.write_text(render(LockedInput(packages=(replace(row, **{key: value}),))))
    with pytest.raises(ConfigError):
        lock.read()


def test_a_row_without_a_package_that_images_need_is_an_error(lock, row):
    lock.path.write_text(render(LockedInput(packages=(replace(row, packages=row.packages[:-1]),))))
    with pytest.raises(ConfigError, match="lacks slurm-smd"):
        lock.read()


@pytest.mark.parametrize(
    ("store", "url"),
    [
        (None, "s3://images/packages/0a/x_1_amd64.deb"),
        ("s3://store/slurm", "s3://store/slurm/packages/0a/x_1_amd64.deb"),
        ("https://store.example.com/slurm", "https://store.example.com/slurm/x_1_amd64.deb"),
    ],
)
def test_the_address_of_a_package_follows_from_the_store(store, url):
    base = example("local")
    images = base.images.model_copy(update={"package_store": store})
    item = deb.Deb(Path("x_1_amd64.deb"), "x", "1", "amd64", "0a")
    store_config = base.model_copy(update={"images": images})
    assert package_store.url_of(store_config, "images", item) == url
