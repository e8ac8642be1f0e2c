"""The bundle: equal files make equal bytes, other files make another name."""

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path

from tests.unit.deploy.samples import example
from toolkit.config import parse
from toolkit.deploy import bundle as bundle_module, names
from toolkit.deploy.bundle import cluster_bundle, image_bundle, image_files, pack
from toolkit.deploy.images import BaseImage, ImageInput, required_images

JOIN = (Path(__file__).parents[3] / "examples/join.yaml").read_text(encoding="utf-8")
SOURCE = ImageInput(BaseImage("ami-0b", "debian", "/dev/xvda"))
FILES = {"b": (0o644, b"2"), "a": (0o755, b"1")}


def archive(bundle):
    return zipfile.ZipFile(io.BytesIO(bundle.data))


def test_the_order_of_files_does_not_change_a_bundle():
    """Sort the files, whatever order the file system has."""
    assert pack(FILES) == pack(dict(reversed(FILES.items())))


def test_content_mode_and_name_of_files_change_the_bundle():
    """Change the hash with everything that an instance could notice."""
    shas = {
        pack(files).sha
        for files in (
            FILES,
            {**FILES, "b": (0o644, b"3")},
            {**FILES, "b": (0o755, b"2")},
            {"c": FILES["b"], "a": FILES["a"]},
            {"b": (0o644, b""), "b2": (0o644, b""), "a": (0o755, b"1")},
        )
    }
    assert len(shas) == 5


def test_the_hash_of_a_bundle_is_that_of_its_bytes():
    """Let whoever fetches the zip compare it before it is opened."""
    bundle = pack(FILES)
    assert bundle.sha == hashlib.sha256(bundle.data).hexdigest()
    assert {entry.compress_type for entry in archive(bundle).infolist()} == {zipfile.ZIP_STORED}


def test_executable_files_stay_executable():
    """Keep the mode of each file in the zip."""
    entry = archive(pack(FILES)).getinfo("a")
    assert entry.external_attr >> 16 == 0o755


def test_the_cluster_bundle_has_all_files_of_a_head_node_and_no_caches():
    """Pack playbooks, runtime, training package, job scripts and rendered files.

    Caches are left out.
    """
    paths = archive(cluster_bundle({"vars.json": "{}"})).namelist()
    for path in (
        "ansible/site.yml",
        "slurmplugins/__init__.py",
        "toolkit/__init__.py",
        "toolkit/errors.py",
        "toolkit/training/__init__.py",
        "toolkit/datasets/__init__.py",
        "toolkit/datasets/__main__.py",
        "templates/slurm/slurm.conf.j2",
        "rendered/vars.json",
    ):
        assert path in paths
    assert not [path for path in paths if "__pycache__" in path or path.endswith(".pyc")]
    assert not [path for path in paths if path.startswith(("toolkit/deploy", "toolkit/cli"))]


def test_the_bundle_contains_the_git_commit_of_the_job_code():
    """Write the git commit into the bundle.

    A run's records name the commit. The copy on the shared filesystem is no checkout.
    """
    sha = archive(cluster_bundle({})).read("jobscripts/GIT_SHA").decode()
    assert re.fullmatch(r"[0-9a-f]{40}(\+dirty)?\n", sha)


def test_the_bundle_is_complete_without_git(monkeypatch):
    """Make the bundle without git, because an installed wheel has no history."""
    monkeypatch.setattr(bundle_module, "_git", lambda *_: "")
    paths = archive(cluster_bundle({})).namelist()
    assert "jobscripts/GIT_SHA" not in paths
    assert "ansible/site.yml" in paths


def test_the_image_bundle_contains_no_job_code():
    """Leave out files that the image does not need.

    They would change the image's name.
    """
    paths = archive(image_bundle(image_files(), {})).namelist()
    assert not [path for path in paths if path.startswith(("jobscripts", "toolkit"))]


def test_the_image_of_a_join_has_the_job_code_if_its_site_wants_it():
    def image(text):
        (spec,) = required_images(parse(text), SOURCE)
        return archive(spec.bundle).namelist(), json.loads(
            archive(spec.bundle).read("rendered/vars.json")
        )

    paths, values = image(JOIN)
    assert not [path for path in paths if path.startswith(("jobscripts", "toolkit"))]
    assert "toolkit_training_python" not in values
    paths, values = image(JOIN.replace("site:\n", "site:\n  jobscripts: true\n", 1))
    assert {"jobscripts/stage.sbatch", "toolkit/training/__init__.py"} <= {*paths}
    assert "jobscripts/GIT_SHA" not in paths  # or each commit would make an image
    assert values["toolkit_jobscripts"] is True
    assert "boto3" in values["toolkit_training_requirements"]


def test_the_name_of_an_image_changes_with_its_content():
    """Change the name with base image, requirements and Slurm version."""
    config = example()
    training = config.training.model_copy(update={"requirements": ("numpy",)})
    image_names = [spec.name for spec in required_images(config, SOURCE)]
    assert image_names == [spec.name for spec in required_images(config, SOURCE)]
    assert image_names[0].startswith("toolkit-head-")
    assert image_names[1].startswith("toolkit-compute-")
    changed_configs = (
        required_images(config, ImageInput(BaseImage("ami-0c", "debian", "/dev/xvda"))),
        required_images(config.model_copy(update={"training": training}), SOURCE),
    )
    for changed_config in changed_configs:
        assert image_names[0] != changed_config[0].name


def test_clusters_with_equal_requirements_share_their_images():
    """Leave the cluster's name and sizes out of an image's name."""
    config = example()
    other_config = config.model_copy(update={"cluster": "other"})
    assert [s.name for s in required_images(config, SOURCE)] == [
        s.name for s in required_images(other_config, SOURCE)
    ]


def test_logical_ids_have_only_letters_and_digits():
    """Use only letters and digits, because CloudFormation refuses others."""
    assert names.logical_id("us-east-1a") == "UsEast1a"
    assert names.logical_id("a10g") == "A10g"
