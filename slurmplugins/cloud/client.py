"""botocore, loaded when a client is first needed: clients, errors, a time limit for each call.

botocore limits the time for each piece of an answer; we limit the time for the whole.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from slurmplugins.cloud import conditional_writes, describe_instances, error_codes
from slurmplugins.config import paths, site
from slurmplugins.errors import CloudError, CloudUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from botocore.credentials import ReadOnlyCredentials

    from slurmplugins.system.clock import Clock


_Result = TypeVar("_Result")

CALL_SECONDS: Final = 45.0
"""Limit of one call. botocore waits 5 s for a connection and 30 s for the first byte.

The rest of an answer takes a second.
"""

_CHECK_SECONDS: Final = 1.0
"""Seconds between two looks at the clock."""

_CREDENTIAL_SERVICES: Final = ("sts", "sso", "sso-oidc")
"""Services that botocore asks for credentials, if a profile or a web identity says so."""

METADATA_SECONDS: Final = 5
METADATA_TRIES: Final = 2
"""Limits for the metadata service, which gives the instance's credentials."""

MAX_MESSAGE: Final = 300
"""Characters kept of an unreadable answer's error message: botocore quotes the whole answer."""


def call_with_limit(clock: Clock, work: Callable[[], _Result]) -> _Result:
    """Do the work within CALL_SECONDS, else raise CloudUnreachable.

    Returns the result of `work` or raises its error. Work that takes too long goes on in a daemon
    thread, for which no exit waits. A program of the engine ends within minutes, and its threads
    and connections end with it.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    deadline = clock.monotonic() + CALL_SECONDS
    thread.start()
    while True:
        thread.join(_CHECK_SECONDS)
        if errors:
            raise errors[0]
        if results:
            return results[0]
        if clock.monotonic() >= deadline:
            raise error_codes.error(
                "Unreachable", f"AWS did not answer within {CALL_SECONDS:.0f} s"
            )


def client(service: str, region: str, endpoint_url: str | None) -> Any:
    """Return a botocore client with the default credential chain and time limits.

    The client has its credentials already: the first call need not fetch them.
    Raises NoCredentialsError if there are none, since a client without credentials never looks
    for them again. Raises CloudError if no HTTP header can carry them.
    """
    from botocore.config import Config
    from botocore.exceptions import NoCredentialsError

    config = Config(
        region_name=region,
        connect_timeout=5,
        read_timeout=30,
        # EC2 answers "no capacity" with a server error, which botocore would repeat by itself.
        # Our callers decide which calls to repeat, and when.
        retries={"mode": "standard", "total_max_attempts": 1 if service == "ec2" else 3},
        # A local endpoint has no DNS name for each bucket.
        s3={"addressing_style": "path"} if endpoint_url else {},
    )
    session = _session(service)
    if (credentials := session.get_credentials()) is None:
        raise NoCredentialsError
    # For a role, botocore would ask STS at the first call.
    _refuse_unsendable(credentials.get_frozen_credentials())
    service_client = session.create_client(service, endpoint_url=endpoint_url, config=config)
    if service == "ec2":
        describe_instances.attach(service_client)
    if service == "s3":
        conditional_writes.attach(service_client)
    return service_client


def _refuse_unsendable(credentials: ReadOnlyCredentials) -> None:
    """Raise CloudError if no HTTP header can carry the credentials.

    Python's own error would quote the session token, and logs would show it.
    """
    for name, value in (("key id", credentials.access_key), ("session token", credentials.token)):
        if value and not (value.isascii() and value.isprintable()):
            raise error_codes.error(
                "MissingCredentials",
                f"the {name} of the AWS credentials has a character that no HTTP header can carry, "
                "such as a newline",
            )


def _session(service: str) -> Any:
    """Return a botocore session for one service.

    By default botocore reads the directories of all 400 services that it knows before it loads
    one. That is a fifth of the time for a client. boto3's own session takes a tenth more: it adds
    resources and transfers, which we do not use.
    """
    import botocore.session
    from botocore.loaders import Loader

    class OneService(Loader):
        def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002 - botocore's
            return [service, *_CREDENTIAL_SERVICES]

    session = botocore.session.get_session()
    if (joined := site.load()) is not None:
        # ~/.aws is the site's, and what slurmctld starts has no HOME.
        session.set_config_variable("config_file", str(paths.AWS_CONFIG))
        if joined.credentials_file:
            session.set_config_variable("credentials_file", joined.credentials_file)
    session.register_component("data_loader", OneService())
    # By default, botocore finds no credentials if one answer takes longer than a second.
    session.set_config_variable("metadata_service_timeout", METADATA_SECONDS)
    session.set_config_variable("metadata_service_num_attempts", METADATA_TRIES)
    # The oldest botocore asks STS in us-east-1 from most regions, where no endpoint of ours leads.
    session.set_config_variable("sts_regional_endpoints", "regional")
    return session


def call(clock: Clock, operation: str, work: Callable[[], _Result]) -> _Result:
    """Return the result of a call, within the time limit.

    Raises CloudError.
    """
    try:
        return call_with_limit(clock, work)
    except Exception as error:
        translated = translate(error)
        if isinstance(translated, CloudError):
            raise translated from error
        # The call was sent, and botocore could not read the answer.
        text = f"{operation}: the answer can't be read: {type(error).__name__}: {error}"
        raise error_codes.error("Unreachable", text[:MAX_MESSAGE]) from error


def translate(error: Exception) -> Exception:
    """Return botocore's error as one of ours, other errors unchanged."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectionError as BotoConnectionError,
        CredentialRetrievalError,
        HTTPClientError,
        NoCredentialsError,
        ParamValidationError,
        PartialCredentialsError,
    )

    if isinstance(error, CloudError):
        return error
    if isinstance(error, ClientError):
        return _response_error(error.response)
    if not isinstance(error, BotoCoreError):
        return error
    codes_by_class: tuple[tuple[type[BotoCoreError], str], ...] = (
        (NoCredentialsError, "MissingCredentials"),
        (PartialCredentialsError, "MissingCredentials"),
        (CredentialRetrievalError, "MissingCredentials"),
        (ParamValidationError, "ValidationError"),
        (HTTPClientError, "Unreachable"),
        (BotoConnectionError, "Unreachable"),
    )
    code = next(
        (code for error_class, code in codes_by_class if isinstance(error, error_class)), ""
    )
    if code:
        return error_codes.error(code, str(error))
    # botocore can't read the answer, but the call was sent: EC2 may have carried it out.
    return CloudUnreachable(str(error)[:MAX_MESSAGE], code=type(error).__name__)


def _response_error(response: Mapping[str, Any]) -> CloudError:
    detail = response.get("Error") or {}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return error_codes.answer_error(
        str(detail.get("Code") or ""), status, str(detail.get("Message") or "")
    )
