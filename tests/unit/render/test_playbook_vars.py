"""vars.json has all that the playbooks need.

Its image variables leave out everything that does not change the image.
"""

import ast
import json
import re
import sys
from pathlib import Path

import pytest

from slurmplugins.node import users
from tests.unit.render.render_samples import CPU_POOL, FACTS, GPU_POOL, PRICES, a_config
from toolkit import datasets, training
from toolkit.datasets.settings import read_settings
from toolkit.render import image_vars
from toolkit.render.playbook_vars import TRAINING_REQUIREMENTS, site_vars


def test_training_requirements_change_only_the_head_image():
    """Keep the training environment out of compute images.

    An image's name is a hash of its variables.
    """
    other_config = a_config(training={"python": "/usr/bin/python3", "requirements": ["numpy"]})
    assert image_vars(a_config(), "compute") == image_vars(other_config, "compute")
    assert image_vars(a_config(), "head") != image_vars(other_config, "head")


def test_clusters_with_equal_requirements_have_equal_image_variables():
    other_config = a_config(cluster="other", users=[], aws={"region": "us-east-1"})
    for kind in ("head", "compute"):
        assert image_vars(a_config(), kind) == image_vars(other_config, kind)


def aws_vars(kind, **pool):
    pools = {"gpu": GPU_POOL, "cpu": CPU_POOL} if not pool else {"cpu": CPU_POOL | pool}
    parts = {"any": {"pools": list(pools)}}
    return json.loads(image_vars(a_config(profile="aws", pools=pools, partitions=parts), kind))


def test_only_images_for_aws_have_driver_variables():
    for kind in ("head", "compute"):
        assert not {"toolkit_ec2", "toolkit_gpus", "toolkit_efa"} & set(
            json.loads(image_vars(a_config(), kind))
        )
        assert aws_vars(kind)["toolkit_ec2"] is True


def test_the_compute_image_has_the_drivers_of_its_pools_and_the_head_image_none():
    assert aws_vars("compute")["toolkit_gpus"] is True
    assert "toolkit_efa" not in aws_vars("compute")
    assert aws_vars("compute", efa=4)["toolkit_efa"] is True
    assert "toolkit_gpus" not in aws_vars("compute", efa=4)
    assert not {"toolkit_gpus", "toolkit_efa"} & set(aws_vars("head"))


def test_the_number_of_instances_does_not_change_an_image():
    assert aws_vars("compute", count=2) == aws_vars("compute", count=200)
    assert aws_vars("compute", efa=1) == aws_vars("compute", efa=32)


def test_every_variable_has_the_prefix_toolkit():
    names = set(json.loads(site_vars(a_config(), FACTS))) | set(
        json.loads(image_vars(a_config(), "head"))
    )
    assert all(name.startswith("toolkit_") or name == "image_kind" for name in names)


def test_the_mount_source_has_the_form_of_the_lustre_client():
    source = json.loads(site_vars(a_config(), FACTS))["toolkit_shared_source"]
    assert source == "fs-01.fsx.us-east-1.amazonaws.com@tcp:/shared"


def test_the_users_variable_is_parsed_by_the_node_program():
    """Render toolkit_users so that slurmplugins.node.users can parse it.

    The role writes the variable to users.json.
    """
    user_vars = json.loads(site_vars(a_config(), FACTS))["toolkit_users"]
    (ada,) = users.parse(json.dumps(user_vars))
    assert (ada.name, ada.uid, ada.gid, ada.home) == ("ada", 2001, 2001, "/shared/home/ada")


def test_vars_json_contains_no_price():
    """Leave prices out, so that a second deploy changes nothing."""
    assert "price" not in site_vars(a_config(), FACTS)
    assert PRICES.spot


@pytest.mark.parametrize(
    ("store", "url"),
    [
        ("shared", "/shared/datasets"),
        ("bucket", f"s3://{FACTS.bucket}/data"),
        ("s3://lab-data/sets", "s3://lab-data/sets"),
    ],
)
def test_the_site_facts_have_the_dataset_store_and_cache(store, url):
    config = a_config(data={"store": store, "cache_gib": 500})
    site_facts = json.loads(site_vars(config, FACTS))["toolkit_site_facts"]
    assert (site_facts["data_store"], site_facts["data_cache"], site_facts["data_cache_gib"]) == (
        url,
        "/scratch",
        500,
    )


@pytest.mark.parametrize(
    "changes", [{"data": {"store": "bucket"}}, {"training": {"checkpoints": "s3://lab/runs"}}]
)
def test_a_store_or_tier_in_s3_adds_boto3_to_the_training_environment(changes):
    needed = json.loads(image_vars(a_config(**changes), "head"))
    assert "boto3" in needed["toolkit_training_requirements"]
    assert "boto3" not in image_vars(a_config(), "head")


def test_real_gpus_add_nvidia_ml_py_to_the_training_environment():
    assert "nvidia-ml-py" in aws_vars("head")["toolkit_training_requirements"]
    assert "nvidia-ml-py" not in image_vars(a_config(), "head")  # profile local has no real GPUs
    assert "nvidia-ml-py" not in aws_vars("head", count=1)["toolkit_training_requirements"]


def library():
    """Return the modules that run in jobs."""
    for package in (datasets, training):
        yield from Path(package.__file__).parent.rglob("*.py")


def test_every_import_of_the_training_library_is_a_requirement_or_optional():
    """Require each imported package, unless it is optional.

    A package that only this repository's environment has would fail on the first real node.
    """
    asked_for = {  # required by one cluster's settings, or installed by users of an adapter
        *("torch", "numpy", "mlflow", "optuna", "boto3", "botocore", "pynvml"),
        *("deepspeed", "transformers", "lightning", "pytorch_lightning"),
    }
    imported = set()
    for path in library():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {item.name.partition(".")[0] for item in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    own_packages = {"toolkit", "slurmplugins"}
    needed = imported - asked_for - own_packages - set(sys.stdlib_module_names)
    assert needed == {item.partition(">")[0] for item in TRAINING_REQUIREMENTS}
    for vars_json in (image_vars(a_config(), "head"), site_vars(a_config(), FACTS)):
        assert set(TRAINING_REQUIREMENTS) <= set(
            json.loads(vars_json)["toolkit_training_requirements"]
        )


SERVICES = {"mlflow_tracking_uri", "sweep_storage"}  # set by ansible/roles/jobscripts
READS = re.compile(r'\bsite(?:_facts\(\w*\))?\.get\("(\w+)"|\breader\.\w+\("\w*", "(\w+)"\)')


def test_cluster_yaml_sets_every_site_fact_that_the_training_library_reads():
    """Write each site fact from cluster.yaml.

    A deploy replaces training.json, so a line that a person added would be lost.
    """
    read = {
        name
        for path in library()
        for pair in READS.findall(path.read_text("utf-8"))
        for name in pair
    } - {""}
    config = a_config(
        data={"store": "bucket", "cache_gib": 2},
        training={"checkpoints": "bucket", "interruptions_per_machine_hour": 0.1},
    )
    site_facts = json.loads(site_vars(config, FACTS))["toolkit_site_facts"]
    assert site_facts["interruptions_per_machine_hour"] == 0.1
    assert read == site_facts.keys() | SERVICES


def test_the_training_library_reads_the_rendered_site_facts(tmp_path, monkeypatch):
    """Read toolkit_site_facts as the role writes them to training.json."""
    site = tmp_path / "training.json"
    config = a_config(data={"store": "bucket", "cache": str(tmp_path), "cache_gib": 2})
    site.write_text(json.dumps(json.loads(site_vars(config, FACTS))["toolkit_site_facts"]))
    settings = read_settings({"TOOLKIT_SITE_FILE": str(site)})
    assert (settings.store, settings.cache_limit) == (f"s3://{FACTS.bucket}/data", 2 << 30)
    assert settings.cache_folder.parent == tmp_path
