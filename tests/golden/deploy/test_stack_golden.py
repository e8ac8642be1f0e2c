"""Golden tests of the rendered templates, byte for byte.

`TOOLKIT_GOLDEN=write` accepts a change; read the diff.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from toolkit.config import load
from toolkit.config.model import LoginNodes
from toolkit.deploy.backup_store import backups_template
from toolkit.deploy.site_node import SiteNode
from toolkit.deploy.stack import TemplateFacts, images_template, stack_template
from toolkit.deploy.user_data import builder_script

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "expected"
ACCOUNT = "123456789012"
FACTS = TemplateFacts(
    account=ACCOUNT,
    head_image="ami-0aaaaaaaaaaaaaaaa",
    compute_image="ami-0cccccccccccccccc",
    root_device="/dev/xvda",
    head_price="0.1008",
    login_image="ami-0aaaaaaaaaaaaaaaa",
    login_price="0.1008",
)


def rendered(example: str) -> dict[str, str]:
    """Return all files that the deploy path renders for one example."""
    config = load(ROOT / "examples" / f"{example}.yaml")
    return {
        f"{example}-stack.yaml": stack_template(config, FACTS),
        f"{example}-images.yaml": images_template(config, ACCOUNT),
        f"{example}-backups.yaml": backups_template(config, ACCOUNT),
        f"{example}-builder.sh": builder_script(
            config, bucket="images-bucket", image="toolkit-head-0123456789ab", sha="0" * 64
        ),
    }


def with_s3() -> dict[str, str]:
    """Return a stack whose jobs keep data in S3."""
    config = load(ROOT / "examples" / "aws.yaml")
    changed = config.model_copy(
        update={
            "training": config.training.model_copy(update={"checkpoints": "bucket"}),
            "data": config.data.model_copy(update={"store": "s3://lab-datasets/all"}),
        }
    )
    return {"s3-stack.yaml": stack_template(changed, FACTS)}


def with_login_nodes() -> dict[str, str]:
    """Return a stack with two login nodes."""
    config = load(ROOT / "examples" / "local.yaml")
    changed = config.model_copy(update={"login_nodes": LoginNodes(count=2)})
    return {"login-stack.yaml": stack_template(changed, FACTS)}


def with_a_site() -> dict[str, str]:
    """Return the stack of a join."""
    node = SiteNode((("slurm1", "10.1.0.5", 6817),), ("slurm", 64030, 64030))
    config = load(ROOT / "examples" / "join.yaml")
    return {"join-stack.yaml": stack_template(config, replace(FACTS, site=node))}


VARIANTS = {"join": with_a_site, "s3": with_s3, "login": with_login_nodes}


@pytest.mark.parametrize("example", ["local", "aws", *VARIANTS])
def test_templates_are_as_reviewed(example):
    """Compare the templates with their files, so that review shows changes."""
    files = VARIANTS[example]() if example in VARIANTS else rendered(example)
    for name, text in files.items():
        path = GOLDEN / name
        if os.environ.get("TOOLKIT_GOLDEN") == "write":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{name} differs; TOOLKIT_GOLDEN=write accepts it"


def test_rendering_twice_gives_the_same_bytes():
    """Render twice, since a deploy without changes must compare equal."""
    assert rendered("aws") == rendered("aws")
