"""`clean --caches` deletes neither what a build uses nor other checkouts' caches."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.fixture
def root(tmp_path):
    """A checkout with the local cloud of a demo.

    The clouds of its tests lie in another folder.
    """
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    (tmp_path / "scripts/test-state").write_text(f"#!/bin/sh\necho {tmp_path}/tests/state\n")
    toolkit = tmp_path / ".venv/bin/toolkit"
    toolkit.parent.mkdir(parents=True)
    toolkit.write_text("#!/bin/sh\n")
    toolkit.chmod(0o755)
    for place in ("demo/state", "demo/toolkit-shared/images", "tests/toolkit-shared/images"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "demo/toolkit-shared/images/images-of-tests.lock").touch()
    return tmp_path


def clean(root, *argv):
    environment = os.environ | {"TOOLKIT_LOCAL_DIR": str(root / "demo/state")}
    done = [str(root / "scripts/clean"), *argv]
    return subprocess.run(done, env=environment, capture_output=True, text=True, check=False)


def test_clean_caches_deletes_the_shared_images_of_the_checkouts_own_clouds(root):
    assert clean(root, "--caches").returncode == 0
    assert not list((root / "demo").iterdir())
    assert (root / "tests/toolkit-shared/images").exists()


def test_clean_caches_keeps_the_shared_images_while_another_checkout_builds_them(root):
    lock = root / "demo/toolkit-shared/images/images-of-tests.lock"
    with lock.open("w") as builder:
        fcntl.flock(builder, fcntl.LOCK_EX)
        done = clean(root, "--caches")
    assert done.returncode == 1
    assert "another checkout builds images" in done.stderr
    assert lock.exists()
    assert (root / "demo/state").exists()


def test_clean_without_caches_keeps_the_shared_images(root):
    assert clean(root).returncode == 0
    assert (root / "demo/state").exists()
    assert (root / "demo/toolkit-shared/images").exists()


def test_clean_only_deletes_one_cloud_and_keeps_the_shared_images(root):
    assert clean(root, "--only", str(root / "demo/state"), "--caches").returncode == 0
    assert not (root / "demo/state").exists()
    assert (root / "demo/toolkit-shared/images").exists()
