"""Connections to AWS for people's commands; turns botocore's errors into the toolkit's."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError as BotoConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from toolkit.errors import (
    AccessDenied,
    AwsError,
    CredentialsMissing,
    EndpointUnreachable,
    RequestRefused,
)
from toolkit.training.io.sendable_credentials import require_sendable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from botocore.session import Session
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_fsx import FSxClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_ssm import SSMClient

    from toolkit.config import ClusterConfig

DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "OptInRequired"}
BAD_CREDENTIALS = {
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
# Long enough for a slow link, short enough to notice a wrong endpoint while waiting for it.
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 60, 4
# Enabled in every account, and none can disable it.
DEFAULT_REGION = "us-east-1"


class Clients:
    """The boto3 clients of one region, made when first needed."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        import boto3  # a quarter of a second, which a report of closed days has no use for

        self._session = boto3.Session(
            botocore_session=_botocore_session(config), region_name=config.aws.region
        )
        self._clients: dict[str, Any] = {}
        self._account = ""

    @overload
    def client(self, service: Literal["cloudformation"]) -> CloudFormationClient: ...
    @overload
    def client(self, service: Literal["ec2"]) -> EC2Client: ...
    @overload
    def client(self, service: Literal["fsx"]) -> FSxClient: ...
    @overload
    def client(self, service: Literal["s3"]) -> S3Client: ...
    @overload
    def client(self, service: Literal["secretsmanager"]) -> SecretsManagerClient: ...
    @overload
    def client(self, service: Literal["ssm"]) -> SSMClient: ...
    @overload
    def client(
        self, service: Literal["cloudwatch", "kms", "logs", "service-quotas", "sts"]
    ) -> Any: ...  # their stubs are not installed

    def client(self, service: str) -> Any:
        """Return a service's client, always the same; threads may share it."""
        if service not in self._clients:
            self._clients[service] = self._connect(service, self.config.aws.region)
        return self._clients[service]

    def ec2_of_default_region(self) -> EC2Client:
        """Return EC2 of a region that every account has."""
        client: EC2Client = self._connect("ec2", DEFAULT_REGION)
        return client

    def _connect(self, service: str, region: str) -> Any:
        from botocore.config import Config

        client = self._session.client(  # type: ignore[call-overload]  # the stubs want a literal
            service,
            region_name=region,
            endpoint_url=self.config.aws.endpoint_url,
            config=Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                retries={"mode": "standard", "max_attempts": ATTEMPTS},
            ),
        )
        require_sendable(client)
        return client

    def key_variables(self) -> dict[str, str]:
        """Return the keys of these clients, as environment variables.

        Raises NoCredentialsError.
        """
        credentials = self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        keys = credentials.get_frozen_credentials()
        variables = {
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_SESSION_TOKEN": keys.token,
        }
        return {name: value for name, value in variables.items() if value}

    @property
    def account(self) -> str:
        """Return the account's number; this proves that the credentials are valid."""
        if not self._account:
            self._account = str(self.client("sts").get_caller_identity()["Account"])
        return self._account

    def role_arn(self, name: str) -> str:
        """Return the ARN of a role of this account without a path."""
        partition = self._session.get_partition_for_region(self.config.aws.region)
        return f"arn:{partition}:iam::{self.account}:role/{name}"


@contextmanager
def connected(config: ClusterConfig) -> Iterator[Clients]:
    """Yield clients for a block; raise botocore's errors as AwsError."""
    try:
        yield Clients(config)
    except (BotoCoreError, ClientError) as error:
        raise translate(error, config) from error


def error_code(error: ClientError) -> str:
    """Return AWS's error code."""
    return str(error.response.get("Error", {}).get("Code", ""))


def translate(error: BotoCoreError | ClientError, config: ClusterConfig) -> AwsError:
    """Return botocore's error as the toolkit's; only this function does so."""
    if isinstance(error, ClientError):
        return _refusal(error)
    if isinstance(error, NoCredentialsError | PartialCredentialsError | ProfileNotFound):
        return CredentialsMissing(str(error), next_step=_credentials_hint(config))
    if isinstance(error, BotoConnectionError | HTTPClientError):
        return EndpointUnreachable(
            str(error),
            next_step="`toolkit local up` starts the local endpoint"
            if config.aws.endpoint_url
            else f"check the network, and that aws.region {config.aws.region} is right",
        )
    return AwsError(str(error))


def _refusal(error: ClientError) -> AwsError:
    code, operation = error_code(error), error.operation_name
    message = f"{operation}: {error.response.get('Error', {}).get('Message', '')} ({code})"
    if code in BAD_CREDENTIALS:
        step = "renew the credentials, then run the same command again"
        return CredentialsMissing(message, operation=operation, code=code, next_step=step)
    if code in DENIED:
        step = f"give these credentials the permission for {operation}"
        return AccessDenied(message, operation=operation, code=code, next_step=step)
    return RequestRefused(message, operation=operation, code=code)


def _credentials_hint(config: ClusterConfig) -> str:
    credentials_file = config.aws.credentials_file
    if credentials_file and config.aws.endpoint_url:
        return f"`toolkit local up` writes {credentials_file}; or remove aws.credentials_file"
    return "run `aws sso login` or `aws configure`, or set aws.profile in cluster.yaml"


def credentials_path(config: ClusterConfig) -> Path | None:
    """Return the path of aws.credentials_file, if cluster.yaml names one."""
    name = config.aws.credentials_file
    return Path(os.path.expanduser(name)) if name else None  # noqa: PTH111  # pathlib raises for ~nobody


def _botocore_session(config: ClusterConfig) -> Session:
    from botocore.session import Session

    session = Session()
    path = credentials_path(config)
    if path is not None:
        if not path.is_file():
            raise CredentialsMissing(
                f"aws.credentials_file {path} doesn't exist", next_step=_credentials_hint(config)
            )
        session.set_config_variable("credentials_file", str(path))
    if config.aws.profile:
        session.set_config_variable("profile", config.aws.profile)
    return session
