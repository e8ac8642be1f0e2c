"""Training in a container pinned by digest, with real umoci and runc."""

from __future__ import annotations

import json

import pytest

from tests.slurm.training_job import DIGITS, HOME, ON_FARM, TORCHRUN, submit
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
LAYOUT, BUNDLE = f"{HOME}/image", f"{HOME}/bundle"
# No registry can be reached, so the tests make an image. Its programs are mounted from the node.
FROM_MACHINE = ("/usr", "/opt/python", "/etc/alternatives", "/etc/ld.so.cache")
MOUNTS = ",".join(f"{path}:{path}:ro" for path in FROM_MACHINE)
MAKE = """
set -eu
umoci init --layout "$1"
umoci new --image "$1:first"
umoci unpack --rootless --image "$1:first" "$2"
cd "$2/rootfs"
mkdir -p usr etc/alternatives opt/python shared run/slurm-toolkit proc sys dev tmp
touch etc/hosts etc/resolv.conf etc/ld.so.cache
for name in bin sbin lib lib64; do ln -s "usr/$name" "$name"; done
echo "of the image" >etc/marker
umoci repack --image "$1:second" "$2"
rm -rf "$2"
umoci unpack --rootless --image "$1:second" "$2"
"""
INSIDE = f"""
import os, runpy, sys, urllib.request
from pathlib import Path
request = urllib.request.Request(os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"])
token = Path(os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read_text()
request.add_header("Authorization", token)
assert b"AccessKeyId" in urllib.request.urlopen(request).read()
assert Path("/etc/marker").read_text() == "of the image\\n"
sys.argv = [{DIGITS!r}, "--epochs", "3"]
runpy.run_path({DIGITS!r}, run_name="__main__")
"""


@pytest.fixture(scope="module")
def pinned(cluster):
    """BUNDLE@DIGEST of an image that ada unpacked."""
    cluster.as_user("sh", "-c", MAKE, "sh", LAYOUT, BUNDLE)
    bundle_facts = json.loads(cluster.run("cat", f"{BUNDLE}/umoci.json"))
    digests = [step["digest"] for step in bundle_facts["from_descriptor_path"]["descriptor_walk"]]
    yield f"{BUNDLE}@{digests[-1]}"
    cluster.as_user("rm", "-rf", LAYOUT, BUNDLE)


def test_ranks_train_inside_the_pinned_image_with_credentials_and_mlflow_has_its_digest(
    cluster, pinned
):
    cluster.write(f"{HOME}/inside.py", INSIDE)
    container_option = f"--export=ALL,TOOLKIT_CONTAINER={pinned}"
    mounts = ("env", f"TOOLKIT_MOUNTS={MOUNTS}")
    job = submit(cluster, container_option, *ON_FARM, TORCHRUN, f"{HOME}/inside.py", before=mounts)
    assert job.ended() == {"COMPLETED"}, job.output()
    run = until("its run in MLflow", job.run)
    assert run["tags"]["toolkit.container"] == pinned.partition("@")[2]
    assert run["status"] == "FINISHED"


def test_an_image_with_another_digest_is_not_started(cluster, pinned):
    other = f"--export=ALL,TOOLKIT_CONTAINER={BUNDLE}@sha256:{'0' * 64}"
    job = submit(cluster, other, *ON_FARM, "--nodes=1", TORCHRUN, f"{HOME}/inside.py")
    assert job.ended() == {"FAILED"}
    assert job.record()["exit_code"]["return_code"]["number"] == 93
    assert "not of the pinned image" in job.output()
