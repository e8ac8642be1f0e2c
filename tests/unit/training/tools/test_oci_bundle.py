"""A job's OCI bundle: the pinned image's files and the node's mounts."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from toolkit.training.errors import BundleRefused
from toolkit.training.tools import oci_bundle
from toolkit.training.tools.oci_bundle import Mount, job_config, main

DIGEST = "sha256:" + "0123456789abcdef" * 4
OTHER = "sha256:" + "f" * 64
UMOCI = {"from_descriptor_path": {"descriptor_walk": [{"digest": OTHER}, {"digest": DIGEST}]}}
IMAGE = {
    "ociVersion": "1.0.2",
    "root": {"path": "rootfs"},
    "process": {"env": ["PATH=/opt/conda/bin:/bin"], "capabilities": {"bounding": ["CAP_KILL"]}},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
    "linux": {"namespaces": [{"type": "pid"}, {"type": "network"}]},
}


@pytest.fixture
def bundle(tmp_path):
    folder = tmp_path / "bundle"
    (folder / "rootfs").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(IMAGE))
    (folder / "umoci.json").write_text(json.dumps(UMOCI))
    return folder


def test_a_step_keeps_its_rights_its_folder_its_processes_and_its_network(bundle):
    made = job_config(IMAGE, bundle, [], cwd="/shared/x", uid=2001, gid=2002)
    assert made["process"]["cwd"] == "/shared/x"
    assert made["process"]["user"] == {"uid": 0, "gid": 0}
    assert {space["type"] for space in made["linux"]["namespaces"]} == {"user", "mount"}
    assert made["linux"]["uidMappings"] == [{"containerID": 0, "hostID": 2001, "size": 1}]
    assert "capabilities" not in made["process"]
    assert made["process"]["env"] == ["PATH=/opt/conda/bin:/bin"]


def test_the_images_files_can_be_read_and_not_written(bundle):
    root = job_config(IMAGE, bundle, [], cwd="/", uid=1, gid=1)["root"]
    assert root == {"path": f"{bundle}/rootfs", "readonly": True}


def test_what_is_mounted_is_whole_and_in_order(bundle):
    mounts = [Mount.parse("/shared:/shared"), Mount.parse("/data:/in:ro")]
    made = job_config(IMAGE, bundle, mounts, cwd="/", uid=1, gid=1)["mounts"]
    assert [(one["source"], one["destination"], one["options"]) for one in made] == [
        ("/shared", "/shared", ["rbind"]),
        ("/data", "/in", ["rbind", "ro"]),
    ]


def test_a_read_only_mount_keeps_what_its_source_is_mounted_with(monkeypatch):
    """Keep the source's mount flags, which an unprivileged user can't drop.

    See mount_namespaces(7), locked mounts.
    """
    flags = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_RELATIME
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=flags))
    options = Mount.parse("/run:/run:ro").with_mount_flags().spec()["options"]
    assert options == ["rbind", "ro", "nosuid", "nodev", "noexec"]


@pytest.mark.parametrize("text", ["", "/a", "a:/b", "/a:b", "/a:/b:exec", "/a:/b:ro:"])
def test_a_mount_that_is_not_two_absolute_paths_is_refused(text):
    with pytest.raises(BundleRefused, match="is not SOURCE:DESTINATION"):
        Mount.parse(text)


def test_the_program_writes_a_bundle_that_names_this_user(bundle, tmp_path):
    assert main([str(bundle), DIGEST, str(tmp_path / "job"), f"{tmp_path}:/here"]) == 0
    made = json.loads((tmp_path / "job/config.json").read_text())
    assert made["linux"]["uidMappings"][0]["hostID"] == os.getuid()
    assert made["mounts"][-1]["destination"] == "/here"


def test_what_is_not_there_is_not_mounted_but_said(bundle, tmp_path, capsys):
    assert main([str(bundle), DIGEST, str(tmp_path / "job"), "/no/such:/here"]) == 93
    assert "the node has no /no/such to mount" in capsys.readouterr().err
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize("said", [None, "", "{}", "[]", '{"from_descriptor_path": {}}'])
def test_a_bundle_that_does_not_say_which_image_it_is_of_is_refused(bundle, tmp_path, capsys, said):
    (bundle / "umoci.json").unlink()
    if said is not None:
        (bundle / "umoci.json").write_text(said)
    assert main([str(bundle), DIGEST, str(tmp_path / "job")]) == 93
    assert "is not of the pinned image" in capsys.readouterr().err


def test_a_folder_without_a_config_is_no_bundle(bundle, tmp_path, capsys):
    (bundle / "config.json").unlink()
    assert main([str(bundle), DIGEST, str(tmp_path / "job")]) == 93
    assert "is no OCI bundle" in capsys.readouterr().err


def test_a_steps_mount_points_are_there_before_the_nodes_start_it(tmp_path):
    """Make the mount points before the nodes start the step.

    Otherwise runc on two nodes makes them at once. On a shared filesystem one of the two fails.
    """
    rootfs, file = tmp_path / "rootfs", tmp_path / "resolv.conf"
    rootfs.mkdir()
    file.touch()
    mounts = [Mount(str(tmp_path), "/data/sets"), Mount(str(file), "/etc/resolv.conf")]
    for _ in range(2):
        oci_bundle.make_mount_points(rootfs, mounts)
    assert (rootfs / "data/sets").is_dir()
    assert (rootfs / "etc/resolv.conf").is_file()
    assert (rootfs / "var/run/slurm").is_dir()


def test_no_link_of_an_image_leads_a_mount_point_out_of_its_rootfs(tmp_path):
    rootfs = tmp_path / "rootfs"
    (rootfs / "var").mkdir(parents=True)
    (rootfs / "var/run").symlink_to("/run")
    (rootfs / "up").symlink_to("../../../elsewhere")
    (rootfs / "circle").symlink_to("circle")
    assert oci_bundle.inside(rootfs, "/var/run/slurm") == rootfs / "run/slurm"
    assert oci_bundle.inside(rootfs, "/up/data") == rootfs / "elsewhere/data"
    assert oci_bundle.inside(rootfs, "/circle/data").is_relative_to(rootfs)


def test_a_rootfs_that_can_not_be_written_is_left_to_runc(tmp_path):
    oci_bundle.make_mount_points(tmp_path / "file", [Mount("/proc", "/proc")])
    (tmp_path / "plain").touch()
    oci_bundle.make_mount_points(tmp_path / "plain", [Mount("/proc", "/proc")])
    assert (tmp_path / "plain").read_bytes() == b""
