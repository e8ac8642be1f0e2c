"""vars.json: enough for the playbooks, and no more than an image's name may depend on."""

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


def test_training_changes_rebuild_the_head_image_only():
    """Image names hash their variables; compute images hold no training environment."""
    other_config = a_config(training={"python": "/usr/bin/python3", "requirements": ["numpy"]})
    assert image_vars(a_config(), "compute") == image_vars(other_config, "compute")
    assert image_vars(a_config(), "head") != image_vars(other_config, "head")


def test_clusters_with_the_same_needs_share_their_images():
    other_config = a_config(cluster="other", users=[], aws={"region": "us-east-1"})
    for kind in ("head", "compute"):
        assert image_vars(a_config(), kind) == image_vars(other_config, kind)


def aws_vars(kind, **pool):
    pools = {"gpu": GPU_POOL, "cpu": CPU_POOL} if not pool else {"cpu": CPU_POOL | pool}
    parts = {"any": {"pools": list(pools)}}
    return json.loads(image_vars(a_config(profile="aws", pools=pools, partitions=parts), kind))


def test_only_images_of_aws_are_told_of_drivers():
    for kind in ("head", "compute"):
        assert not {"toolkit_ec2", "toolkit_gpus", "toolkit_efa"} & set(
            json.loads(image_vars(a_config(), kind))
        )
        assert aws_vars(kind)["toolkit_ec2"] is True


def test_the_compute_image_has_drivers_for_what_some_pool_has_and_the_head_never():
    assert aws_vars("compute")["toolkit_gpus"] is True
    assert "toolkit_efa" not in aws_vars("compute")
    assert aws_vars("compute", efa=4)["toolkit_efa"] is True
    assert "toolkit_gpus" not in aws_vars("compute", efa=4)
    assert not {"toolkit_gpus", "toolkit_efa"} & set(aws_vars("head"))


def test_more_of_the_same_instances_need_no_other_image():
    assert aws_vars("compute", count=2) == aws_vars("compute", count=200)
    assert aws_vars("compute", efa=1) == aws_vars("compute", efa=32)


def test_every_variable_is_ours_by_its_name():
    names = set(json.loads(site_vars(a_config(), FACTS))) | set(
        json.loads(image_vars(a_config(), "head"))
    )
    assert all(name.startswith("toolkit_") or name == "image_kind" for name in names)


def test_the_mount_source_is_what_the_lustre_client_takes():
    source = json.loads(site_vars(a_config(), FACTS))["toolkit_shared_source"]
    assert source == "fs-01.fsx.us-east-1.amazonaws.com@tcp:/shared"


def test_compute_nodes_take_the_users_as_they_are_written():
    """The role writes toolkit_users to users.json, which slurmplugins.node.users reads."""
    user_vars = json.loads(site_vars(a_config(), FACTS))["toolkit_users"]
    (ada,) = users.parse(json.dumps(user_vars))
    assert (ada.name, ada.uid, ada.gid, ada.home) == ("ada", 2001, 2001, "/shared/home/ada")


def test_prices_and_templates_do_not_reach_the_playbooks():
    """Nothing in vars.json changes with the spot market, so a second deploy changes nothing."""
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
def test_jobs_are_told_where_datasets_are(store, url):
    config = a_config(data={"store": store, "cache_gib": 500})
    site_facts = json.loads(site_vars(config, FACTS))["toolkit_site_facts"]
    assert (site_facts["data_store"], site_facts["data_cache"], site_facts["data_cache_gib"]) == (
        url,
        "/scratch",
        500,
    )


@pytest.mark.parametrize(
    "said", [{"data": {"store": "bucket"}}, {"training": {"checkpoints": "s3://lab/runs"}}]
)
def test_a_place_in_s3_brings_what_reads_it_into_the_training_environment(said):
    needed = json.loads(image_vars(a_config(**said), "head"))
    assert "boto3" in needed["toolkit_training_requirements"]
    assert "boto3" not in image_vars(a_config(), "head")


def test_environments_of_real_gpus_have_what_tells_how_much_of_them_is_used():
    assert "nvidia-ml-py" in aws_vars("head")["toolkit_training_requirements"]
    assert "nvidia-ml-py" not in image_vars(a_config(), "head")  # profile local pretends its GPUs
    assert "nvidia-ml-py" not in aws_vars("head", count=1)["toolkit_training_requirements"]


def library():
    """The modules that run in jobs."""
    for package in (datasets, training):
        yield from Path(package.__file__).parent.rglob("*.py")


def test_what_the_training_library_imports_is_in_every_environment_or_asked_for():
    """A package that only this repository's own environment has fails on the first real node."""
    asked_for = {  # by a cluster's requirements, or by who uses what needs them
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


SERVICES = {"mlflow_tracking_uri", "sweep_storage"}  # the head's, by ansible/roles/jobscripts
READS = re.compile(r'\bsite(?:_facts\(\w*\))?\.get\("(\w+)"|\breader\.\w+\("\w*", "(\w+)"\)')


def test_whatever_the_training_library_reads_of_the_site_cluster_yaml_can_say():
    """Each deploy writes training.json whole: what stands there by hand is gone with the next."""
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


def test_what_jobs_are_told_is_what_the_training_library_reads(tmp_path, monkeypatch):
    """training.json is toolkit_site_facts and the services, as it stands."""
    site = tmp_path / "training.json"
    config = a_config(data={"store": "bucket", "cache": str(tmp_path), "cache_gib": 2})
    site.write_text(json.dumps(json.loads(site_vars(config, FACTS))["toolkit_site_facts"]))
    settings = read_settings({"TOOLKIT_SITE_FILE": str(site)})
    assert (settings.store, settings.cache_limit) == (f"s3://{FACTS.bucket}/data", 2 << 30)
    assert settings.cache_folder.parent == tmp_path
