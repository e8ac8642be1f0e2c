"""Golden tests of the files that a head node runs on.

`TOOLKIT_GOLDEN=write` accepts a change; read the diff.
"""

import os
from pathlib import Path

import pytest

from tests.unit.render.render_samples import FACTS, PRICES, a_config
from toolkit.render import bundle_files, image_vars

HERE = Path(__file__).parent / "expected"
TEMPLATES = Path(__file__).parents[3] / "templates"
VERSIONS = ["23.11", "24.05", "24.11", "25.05", "25.11", "26.05"]


def compare(name, text):
    path = HERE / name
    if os.environ.get("TOOLKIT_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name} changed"


def rendered(**changes):
    return bundle_files(a_config(**changes), FACTS, PRICES, templates=TEMPLATES)


def test_the_local_profile_renders_as_reviewed():
    for name, text in rendered().items():
        compare(f"local/{name}", text)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_slurm_version_renders_as_reviewed(version):
    files = rendered(
        profile="aws",
        aws={"region": "us-east-1"},
        slurm={"version": version, "settings": {"MaxArraySize": 5000, "KillWait": 90}},
    )
    for name in ("slurm.conf", "gres.conf", "cgroup.conf", "job_container.conf"):
        compare(f"aws-{version}/{name}", files[name])


def test_workload_classes_and_account_budgets_render_as_reviewed():
    files = rendered(
        slurm={"version": "24.11", "billing": "bought"},
        accounts=[{"name": "vision"}, {"name": "lab", "parent": "vision"}],
        users=[],
        classes={"sweep": {"partitions": ["spot"]}, "train": {"preempts": ["sweep"]}},
        budgets={
            "vision-month": {"account": "vision", "usd": 5000},
            "lab-grant": {
                "account": "lab",
                "usd": "1250.50",
                "period": "grant",
                "since": "2026-01-01",
                "until": "2027-07-01",
                "steps": [{"at": 90, "do": "requeue"}],
                "notify": ["/usr/local/sbin/mail-budget"],
            },
        },
    )
    for name in ("slurm.conf", "job_container.conf", "burst.json"):
        compare(f"budgets/{name}", files[name])


@pytest.mark.parametrize("kind", ["head", "compute"])
def test_image_variables_render_as_reviewed(kind):
    compare(f"image-{kind}.json", image_vars(a_config(), kind))


@pytest.mark.parametrize("kind", ["head", "compute"])
def test_image_variables_on_aws_render_as_reviewed(kind):
    compare(f"image-{kind}-aws.json", image_vars(a_config(profile="aws"), kind))
