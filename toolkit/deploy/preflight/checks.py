"""All checks of an account against cluster.yaml. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.deploy.preflight.findings import Finding, Severity
from toolkit.deploy.preflight.quotas import quota_checks
from toolkit.deploy.preflight.rates import rate_checks
from toolkit.deploy.preflight.reservations import reservation_checks
from toolkit.deploy.preflight.types import type_checks, zone_checks
from toolkit.deploy.preflight.uses import uses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from toolkit.config import ClusterConfig
    from toolkit.deploy.preflight.facts import AccountFacts


def account_checks(config: ClusterConfig, facts: AccountFacts, now: datetime) -> Iterator[Finding]:
    """Yield everything in the account that contradicts cluster.yaml."""
    yield from zone_checks(config, facts)
    yield from type_checks(config, facts)
    yield from quota_checks(config, facts)
    yield from rate_checks(config)
    yield from reservation_checks(config, facts, now)
    yield from _image_build(facts)
    yield from _default_key(config, facts)
    yield from _refused_launches(facts)
    yield from _unanswered(facts)


def region_not_enabled(config: ClusterConfig) -> Finding:
    """Return the finding of a region that the account has not enabled."""
    message = (
        f"the account has not enabled {config.aws.region}: enable it in AWS's account settings"
    )
    return Finding("region-not-enabled", Severity.ERROR, ("aws", "region"), message)


def _image_build(facts: AccountFacts) -> Iterator[Finding]:
    problems = (
        ("base-image-missing", ("images", "base"), facts.base_image_problem),
        ("slurm-packages-missing", ("slurm", "packages"), facts.slurm_packages_problem),
        ("no-builder-subnet", ("images", "subnet"), facts.builder_subnet_problem),
    )
    for slug, path, problem in problems:
        if problem:
            yield Finding(slug, Severity.ERROR, path, problem)


def _default_key(config: ClusterConfig, facts: AccountFacts) -> Iterator[Finding]:
    """Warn of a customer's key for disks, with the grants it needs.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
    Without them an instance ends as it begins, with Client.InternalError.
    """
    key = facts.default_key
    if key is None or not key.of_customer:
        return
    has_spot = any(use.lifecycle == "spot" for use in uses(config))
    spot_role = (
        f" and arn:aws:iam::{facts.account}:role/aws-service-role/spot.amazonaws.com/"
        "AWSServiceRoleForEC2Spot"
    )
    message = (
        f"disks are encrypted by the customer's key {key.id}: its policy must let the head node's"
        f" role{spot_role if has_spot else ''} use it (kms:CreateGrant, kms:Decrypt,"
        " kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext, kms:ReEncrypt*); otherwise nodes"
        " end with Client.InternalError"
    )
    yield Finding("customer-key", Severity.WARNING, (), message)


def _refused_launches(facts: AccountFacts) -> Iterator[Finding]:
    for launch in facts.refused_launches:
        message = f"EC2 refuses to launch {launch.subject}: {launch.message} ({launch.code})"
        yield Finding("launch-refused", Severity.ERROR, launch.key_path, message)


def _unanswered(facts: AccountFacts) -> Iterator[Finding]:
    for question in facts.unanswered:
        if question.right:
            message = f"not checked: {question.subject}; the caller lacks {question.right}"
        else:
            message = f"not checked: {question.subject}; {question.message}"
        yield Finding("not-checked", Severity.NOTE, (), message)
