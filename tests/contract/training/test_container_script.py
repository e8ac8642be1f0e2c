"""The pin of a container by digest: without it, no job starts."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = Path(__file__).resolve().parents[3] / "jobscripts" / "lib"
DIGEST = "sha256:" + "0123456789abcdef" * 4
PROGRAM = f"""
source "{LIBRARY}/preflight.sh"
container_options
printf 'option %s\\n' "${{CONTAINER[@]}}"
echo "digest ${{TOOLKIT_CONTAINER_DIGEST:-none}}"
"""


@pytest.fixture
def options(tmp_path):
    """A function that runs the helper with pyxis, OCI or neither."""
    srun = tmp_path / "srun"

    def run(container, *, has=""):
        srun.write_text(f"#!/bin/bash\necho '{'--container-image=' if has == 'pyxis' else ''}'\n")
        srun.chmod(0o755)
        if has == "oci":
            (tmp_path / "oci.conf").touch()
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_CONF": str(tmp_path / "slurm.conf"),
            "TOOLKIT_ENV": str(Path(sys.executable).parents[1]),
            "TOOLKIT_RUN_DIR": str(tmp_path / "run"),
            "SLURM_JOB_ID": "7",
            "TOOLKIT_MOUNTS": "/no/such:/here:ro",
            "PYTHONPATH": str(LIBRARY.parents[1]),
            **({"TOOLKIT_CONTAINER": container} if container else {}),
        }
        argv = ["bash", "-c", PROGRAM]
        done = subprocess.run(
            argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_without_a_container_nothing_is_added(options):
    assert options("") == (0, "option \ndigest none\n")


@pytest.mark.parametrize("container", ["pytorch:latest", "pytorch@sha256:12", "a b@", "@" + DIGEST])
def test_an_image_that_is_not_pinned_is_refused_with_what_to_write(options, container):
    code, said = options(container, has="pyxis")
    assert code == 93
    assert "is not pinned: write IMAGE@sha256:" in said


@pytest.mark.parametrize(
    ("image", "enroot"),
    [
        ("pytorch/pytorch", "pytorch/pytorch"),
        ("pytorch/pytorch:2.13", "pytorch/pytorch"),
        ("nvcr.io/nvidia/pytorch:26.10-py3", "nvcr.io#nvidia/pytorch"),
        ("registry:5000/team/image", "registry:5000#team/image"),
    ],
)
def test_pyxis_is_given_the_digest_in_enroots_words(options, image, enroot):
    code, said = options(f"{image}@{DIGEST}", has="pyxis")
    assert code == 0
    assert f"option --container-image={enroot}@{DIGEST}\n" in said
    assert "option --container-mounts=/shared:/shared," in said
    assert f"digest {DIGEST}\n" in said


def test_an_image_file_is_checked_against_its_pin(options, tmp_path):
    image = tmp_path / "image.sqsh"
    image.write_bytes(b"layers")
    right = f"sha256:{hashlib.sha256(b'layers').hexdigest()}"
    assert f"--container-image={image}\n" in options(f"{image}@{right}", has="pyxis")[1]
    code, said = options(f"{image}@{DIGEST}", has="pyxis")
    assert (code, "has another digest than" in said) == (93, True)


def test_a_bundle_must_be_of_the_image_that_was_pinned(options, tmp_path):
    """Run with an absent bundle, another image's, and the right one.

    Even the right one fails, because the path to mount is missing.
    """
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    assert options(f"{bundle}@{DIGEST}", has="oci")[0] == 93  # there is no bundle yet
    (bundle / "config.json").write_text('{"root": {"path": "rootfs"}}')
    code, said = options(f"{bundle}@{DIGEST}", has="oci")
    assert (code, "is not of the pinned image" in said) == (93, True)
    walk = {"from_descriptor_path": {"descriptor_walk": [{"digest": DIGEST}]}}
    (bundle / "umoci.json").write_text(json.dumps(walk))
    code, said = options(f"{bundle}@{DIGEST}", has="oci")
    assert (code, "the node has no" in said, "/no/such" in said) == (93, True, True)


def test_a_cluster_without_containers_says_so(options):
    code, said = options(f"image@{DIGEST}")
    assert code == 93
    assert "neither pyxis nor oci.conf" in said


def test_an_older_torchrun_is_given_no_option_that_it_lacks(tmp_path):
    """Launch with the torchrun of an older image.

    Options that came with version 2.13 are passed through the environment.
    """
    of_older = {  # the options of torch 2.1 that a launch needs
        *("nnodes", "node-rank", "nproc-per-node", "rdzv-backend", "rdzv-id", "max-restarts"),
        *("master-addr", "master-port", "local-addr"),
    }
    torchrun = tmp_path / "bin" / "torchrun"
    torchrun.parent.mkdir()
    torchrun.write_text('#!/bin/bash\necho "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT" "$@"\n')
    torchrun.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "TOOLKIT_ENV": "/nowhere",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NODEID": "1",
        "SLURM_GPUS_ON_NODE": "8",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20049",
        "TOOLKIT_CONTAINER": f"image@{DIGEST}",
        "TOOLKIT_CONTAINER_ENV": str(tmp_path),
        "TOOLKIT_JOBSCRIPTS": str(LIBRARY.parent),
    }
    argv = ["bash", str(LIBRARY / "node.sh"), "train.py", "--lr", "1"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    patience, *words = done.stdout.split()
    options = words[: words.index("--")]
    assert patience == "60"
    assert "--nproc-per-node=8" in options
    assert {word.removeprefix("--").partition("=")[0] for word in options} <= of_older
    assert words[len(options) :] == ["--", "./train.py", "--lr", "1"]
