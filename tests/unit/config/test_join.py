"""cluster.yaml of a join: what it needs, and what it can't have."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.config import load, parse
from toolkit.errors import ConfigInvalid

EXAMPLES = Path(__file__).parents[3] / "examples"
JOIN = (EXAMPLES / "join.yaml").read_text(encoding="utf-8")


def problem(text: str) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        parse(text)
    return str(caught.value)


def test_the_example_is_a_join():
    config = load(EXAMPLES / "join.yaml")
    assert config.joined_site.controllers == ("slurm1", "slurm2")
    assert not any(part.enabled for part in (config.mlflow, config.backups, config.alarms))


@pytest.mark.parametrize("section", ["head", "shared", "mlflow", "accounts", "users"])
def test_what_only_a_cluster_has_is_refused(section):
    assert f"{section}: not with kind: join" in problem(f"{JOIN}{section}: {{}}\n")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("vpc: vpc-0123456789abcdef0", "", "expected vpc"),
        ("subnets: {us-east-1a", "subnets: {us-east-1b", "expected network.subnets.us-east-1a"),
        ("principal: arn:aws:iam::123456789012:user/slurm-controller", "", "expected principal"),
        ("profile: burst", "credentials_file: /x", "expected profile"),
        ("policy: spot-first", "default: true", "the site's default partition stays"),
        ("suspend_time: 600", "settings: {}", "the site's slurm.conf says it"),
        ("profile: burst", "roles_anywhere: {}", "not beside roles_anywhere"),
        ("kind: join\n", "", "only for kind: join"),
    ],
)
def test_a_mistake_is_named(old, new, message):
    assert old in JOIN
    assert message in problem(JOIN.replace(old, new, 1))


def test_a_join_without_a_site_is_refused():
    assert "expected site" in problem(JOIN[: JOIN.index("site:")] + JOIN[JOIN.index("slurm:") :])


def test_the_environment_of_job_scripts_is_settled_only_where_the_image_has_them():
    with_scripts = JOIN.replace("site:\n", "site:\n  jobscripts: true\n", 1)
    requirements = "training: {requirements: [numpy]}\n"
    assert parse(with_scripts + requirements).training.requirements == ("numpy",)
    assert "training: not with kind: join" in problem(JOIN + requirements)
    text = problem(f"{with_scripts}training: {{checkpoints: bucket}}\n")
    assert "training.checkpoints: not with kind: join" in text


@pytest.mark.parametrize("name", ["vision", "2024-phys", "p.0815", "hpc_" + "x" * 40])
def test_a_rule_may_be_about_any_account_of_the_site(name):
    text = (EXAMPLES / "join.yaml").read_text(encoding="utf-8")
    rule = f"burst: {{Main: {{partition: burst, accounts: {{{name}: {{usd_per_month: 5}}}}}}}}\n"
    assert list(parse(f"{text}\n{rule}").burst["Main"].accounts) == [name]
    assert "in lower case" in problem(f"{text}\n{rule}".replace(f"{{{name}:", "{Vision:"))
