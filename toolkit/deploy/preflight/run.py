"""Runs the preflight: asks, checks, and finds the line of each finding."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from toolkit.config import places
from toolkit.deploy.preflight.account import Questions
from toolkit.deploy.preflight.checks import account_checks, region_not_enabled
from toolkit.deploy.preflight.findings import LocatedFinding, Preflight, Severity
from toolkit.deploy.session import BAD_CREDENTIALS, error_code

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from toolkit.config import ClusterConfig
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.deploy.preflight.findings import Finding
    from toolkit.deploy.session import Clients
    from toolkit.output import Reporter

ORDER = tuple(Severity)
NOT_OPTED_IN = "not-opted-in"


def preflight(
    config: ClusterConfig,
    clients: Clients,
    report: Reporter,
    path: Path,
    lock: ImageLock | None = None,
) -> Preflight:
    """Ask AWS about everything that the cluster needs; return every finding.

    It changes nothing. Raises AwsError for credentials that AWS doesn't accept.
    """
    with report.phase("Asking the account") as phase:
        try:
            facts = Questions(config, clients, lock, phase).ask()
        except ClientError as error:
            if error_code(error) not in BAD_CREDENTIALS or _region_enabled(config, clients):
                raise
            result = Preflight(str(path), "", "", _located(path, [region_not_enabled(config)]))
        else:
            found = account_checks(config, facts, datetime.now(UTC))
            result = Preflight(str(path), facts.account, facts.caller, _located(path, found))
        phase.result(_counts(result))
    return result


def _region_enabled(config: ClusterConfig, clients: Clients) -> bool:
    """Return whether the account may use the region.

    A region that is not enabled refuses good credentials, so another is asked:
    https://docs.aws.amazon.com/accounts/latest/reference/manage-acct-regions.html
    """
    try:
        regions = clients.ec2_of_default_region().describe_regions(
            RegionNames=[config.aws.region], AllRegions=True
        )["Regions"]
    except ClientError:
        return True  # then it is the credentials
    return not any(region.get("OptInStatus") == NOT_OPTED_IN for region in regions)


def _located(path: Path, findings: Iterable[Finding]) -> tuple[LocatedFinding, ...]:
    """Return findings with their lines, errors first."""
    tree = places.read_file(path)
    located = [
        LocatedFinding(
            item.slug,
            item.severity,
            places.line_of(tree, item.key_path) if item.key_path else 0,
            places.path_text(item.key_path),
            item.message,
        )
        for item in findings
    ]
    return tuple(sorted(located, key=lambda item: (ORDER.index(item.severity), item.line)))


def _counts(result: Preflight) -> str:
    counts = {
        severity: sum(item.severity is severity for item in result.findings) for severity in ORDER
    }
    parts = [
        f"{count} {name}{'s' if count != 1 else ''}" for name, count in counts.items() if count
    ]
    return ", ".join(parts) or "no problem"
