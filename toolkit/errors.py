"""The error tree of the people's side of the toolkit.

Each class has a stable `reason` (a code for scripts and tests) and an `exit_code`. The message says
what happened; `next_step` says what to do, if that is known. Commands whose exit code 2 means a
difference (`toolkit.commands.exit_codes`) exit with 1 for all of them.

* ToolkitError                          failed                    1
  * ConfigError                         config-error              2
    - ConfigNotFound                    config-not-found          2
    - ConfigExists                      config-exists             2
    - ConfigInvalid                     config-invalid            2
    - WrongKind                         wrong-kind                2
  * RenderError                         render-failed             2
  * NotConfirmed                        not-confirmed             3
  * AwsError                            aws-failed                4
    - CredentialsMissing                aws-credentials-missing   4
    - EndpointUnreachable               aws-unreachable           4
    - AccessDenied                      aws-denied                4
    - RequestRefused                    aws-refused               4
  * DeployError                         deploy-failed             1
    - AccountNotReady                   account-not-ready         1
    - BaseImageMissing                  base-image-missing        1
    - ImageBuildFailed                  image-build-failed        1
    - SlurmPackagesMissing              slurm-packages-missing    1
    - SlurmPackagesUnfit                slurm-packages-unfit      1
    - StackFailed                       stack-failed              1
    - StackMissing                      stack-missing             1
    - HeadNotReady                      head-not-ready            1
    - HeadCommandFailed                 head-command-failed       1
    - DestroyIncomplete                 destroy-incomplete        1
    - SlurmTooOld                       slurm-too-old             1
    - SlurmVersionsDiffer               slurm-versions-differ     1
    - SecretUnusable                    secret-unusable           1
    - KeyNotTaken                       key-not-taken             1
    - BackupMissing                     backup-missing            1
    - BackupUnusable                    backup-unusable           1
  * LocalError                          local-failed              1
    - PreflightFailed                   preflight-failed          1
  * SlurmAnswerError                    toolkit.head_runner
  * JoinError, SiteCommandFailed        toolkit.join.errors
  * AccountingError                     toolkit.accounting.errors
  * PricesError                         toolkit.prices.errors
  * BillError                           toolkit.bill.errors
  * UsageStoreError                     toolkit.usage.errors
  * StatementsError                     toolkit.statements.errors
  * RunsError                           toolkit.runs.errors
  * LogsError                           toolkit.logs.errors
  * SubmitRefused, SlurmRefused         toolkit.submit.errors
  * DataError                           toolkit.datasets.errors
  * TrainingError                       toolkit.training.errors
"""
# ruff: noqa: N818  # the name states the fault; "Error" after it would state it twice

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class ToolkitError(Exception):
    """An error for a person to read; its text is complete without a traceback."""

    reason: ClassVar[str] = "failed"  # a stable reason code, for scripts and tests
    exit_code: int = 1  # of the `toolkit` command

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step


# Configuration


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a file."""

    line: int
    path: str  # the key, e.g. `pools.gpu.shape`; empty for the whole file
    message: str  # the expected value, and the one found

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"line {self.line}: {where}{self.message}"


class ConfigError(ToolkitError):
    """cluster.yaml can't be used."""

    reason = "config-error"
    exit_code = 2


class ConfigNotFound(ConfigError):
    """No cluster.yaml is at the given path."""

    reason = "config-not-found"


class ConfigExists(ConfigError):
    """An existing cluster.yaml would be overwritten."""

    reason = "config-exists"


class ConfigInvalid(ConfigError):
    """The file cluster.yaml has problems; `problems` holds all of them, in line order."""

    reason = "config-invalid"

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line, problem.path)))
        count = len(self.problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{source}: {count} problem{'s' if count != 1 else ''}\n{lines}")


class WrongKind(ConfigError):
    """The command is for clusters, and cluster.yaml is of a join, or the other way round."""

    reason = "wrong-kind"


class RenderError(ToolkitError):
    """A template and its context don't fit together."""

    reason = "render-failed"
    exit_code = 2


class NotConfirmed(ToolkitError):
    """A change that loses something was requested without `--yes`."""

    reason = "not-confirmed"
    exit_code = 3


# AWS


class AwsError(ToolkitError):
    """AWS refused, or did not answer; `operation` and `code` are AWS's own names."""

    reason = "aws-failed"
    exit_code = 4

    def __init__(
        self, message: str, *, operation: str = "", code: str = "", next_step: str = ""
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.operation = operation
        self.code = code


class CredentialsMissing(AwsError):
    """No credentials were found, or they are not valid."""

    reason = "aws-credentials-missing"


class EndpointUnreachable(AwsError):
    """The endpoint doesn't answer."""

    reason = "aws-unreachable"


class AccessDenied(AwsError):
    """The credentials are valid, but lack this permission."""

    reason = "aws-denied"


class RequestRefused(AwsError):
    """AWS understood the request and refused it."""

    reason = "aws-refused"


# Deployment


class DeployError(ToolkitError):
    """A cluster could not be brought to the state that cluster.yaml describes."""

    reason = "deploy-failed"


class AccountNotReady(DeployError):
    """The AWS account can't have this cluster; nothing was changed."""

    reason = "account-not-ready"


class BaseImageMissing(DeployError):
    """No image matches `images.base`."""

    reason = "base-image-missing"


class ImageBuildFailed(DeployError):
    """A builder instance didn't end with an image."""

    reason = "image-build-failed"


class SlurmPackagesMissing(DeployError):
    """The lock file or its store lacks Slurm packages that cluster.yaml wants."""

    reason = "slurm-packages-missing"


class SlurmPackagesUnfit(DeployError):
    """Packages are not what the lock file or an image needs; none was installed."""

    reason = "slurm-packages-unfit"


class StackFailed(DeployError):
    """CloudFormation ended in a failed or rolled back state."""

    reason = "stack-failed"


class StackMissing(DeployError):
    """The cluster isn't deployed."""

    reason = "stack-missing"


class HeadNotReady(DeployError):
    """The head node didn't come up, or its playbook failed."""

    reason = "head-not-ready"


class HeadCommandFailed(DeployError):
    """A command on the head node ended with another exit code than 0."""

    reason = "head-command-failed"

    def __init__(
        self, message: str, *, returncode: int = -1, stdout: str = "", stderr: str = ""
    ) -> None:
        super().__init__(message)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


class DestroyIncomplete(DeployError):
    """Some of the cluster's resources still exist after destroy."""

    reason = "destroy-incomplete"


class SlurmTooOld(DeployError):
    """The cluster's Slurm can't do what was requested."""

    reason = "slurm-too-old"


class SlurmVersionsDiffer(DeployError):
    """Head node and compute nodes would have versions of Slurm that don't work together."""

    reason = "slurm-versions-differ"


class SecretUnusable(DeployError):
    """The cluster's secret is not what Slurm takes as its key."""

    reason = "secret-unusable"


class KeyNotTaken(DeployError):
    """A node did not take Slurm's new keys in time."""

    reason = "key-not-taken"


class BackupMissing(DeployError):
    """The backup, or its bucket, does not exist."""

    reason = "backup-missing"


class BackupUnusable(DeployError):
    """A backup can't be taken or restored; the message says whether anything was changed."""

    reason = "backup-unusable"


# The local cloud


class LocalError(ToolkitError):
    """The local cloud can't do the requested operation."""

    reason = "local-failed"


class PreflightFailed(LocalError):
    """A requirement that this computer lacks; nothing was changed."""

    reason = "preflight-failed"
