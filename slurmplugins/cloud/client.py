"""botocore, loaded when a client is first needed: clients, errors, a bound on each call.

botocore's own time limit is on each piece of an answer; ours is on the whole.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from slurmplugins.cloud import error_codes
from slurmplugins.errors import CloudError, CloudUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurmplugins.system.clock import Clock


_Result = TypeVar("_Result")

CALL_SECONDS: Final = 45.0
"""botocore waits 5 s for a connection and 30 s for a first byte; the rest takes a second."""

_LOOK_EVERY: Final = 1.0

_OF_CREDENTIALS: Final = ("sts", "sso", "sso-oidc")
"""Services that botocore asks for credentials, where a profile or a web identity says so."""

METADATA_SECONDS: Final = 5
METADATA_TRIES: Final = 2

SAID: Final = 300
"""Characters of an answer that could not be read: botocore quotes all of it."""


def within(clock: Clock, work: Callable[[], _Result]) -> _Result:
    """Return or raise what `work` does; raise CloudUnreachable once it takes too long.

    It goes on in a thread of its own that no exit waits for. A program of the engine ends within
    minutes, and its threads and connections with it.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    until = clock.monotonic() + CALL_SECONDS
    thread.start()
    while True:
        thread.join(_LOOK_EVERY)
        if errors:
            raise errors[0]
        if results:
            return results[0]
        if clock.monotonic() >= until:
            raise error_codes.error("Unreachable", f"no whole answer within {CALL_SECONDS:.0f} s")


def client(service: str, region: str, endpoint_url: str | None) -> Any:
    """A client with the default credential chain and bounds on how long it may wait. It has its
    credentials: the first call need not fetch them. Raises NoCredentialsError where there are none:
    a client that is made without them never looks again.
    """
    from botocore.config import Config
    from botocore.exceptions import NoCredentialsError

    config = Config(
        region_name=region,
        connect_timeout=5,
        read_timeout=30,
        # EC2 answers "no capacity" with a server error, which botocore would repeat by itself;
        # its callers know what to repeat, and when.
        retries={"mode": "standard", "total_max_attempts": 1 if service == "ec2" else 3},
        # The compute node has no reason to look for a profile or a proxy in a user's home.
        s3={"addressing_style": "path"} if endpoint_url else {},
    )
    session = _session(service)
    if (credentials := session.get_credentials()) is None:
        raise NoCredentialsError
    credentials.get_frozen_credentials()  # of a role: botocore would ask STS at the first call
    found = session.create_client(service, endpoint_url=endpoint_url, config=config)
    if service == "ec2":
        from slurmplugins.cloud import describe_instances

        describe_instances.attach(found)
    return found


def _session(service: str) -> Any:
    """A session for one service. Left alone, botocore looks into the directories of all 400 that it
    knows before it loads one: a fifth of what a client takes. boto3's own session adds resources
    and transfers, which nothing here uses, and takes a tenth more.
    """
    import botocore.session
    from botocore.loaders import Loader

    class OneService(Loader):
        def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002 - botocore's
            return [service, *_OF_CREDENTIALS]

    core = botocore.session.get_session()
    core.register_component("data_loader", OneService())
    # Left alone, one answer that takes longer than a second is none, and no credentials are found.
    core.set_config_variable("metadata_service_timeout", METADATA_SECONDS)
    core.set_config_variable("metadata_service_num_attempts", METADATA_TRIES)
    return core


def ask(clock: Clock, name: str, work: Callable[[], _Result]) -> _Result:
    """Return what a call brings within its time; raise a CloudError else."""
    try:
        return within(clock, work)
    except Exception as error:
        known = translate(error)
        if isinstance(known, CloudError):
            raise known from error
        # It was sent, and botocore did not expect what came back.
        text = f"{name}: an answer that can't be read: {type(error).__name__}: {error}"
        raise error_codes.error("Unreachable", text[:SAID]) from error


def translate(error: Exception) -> Exception:
    """botocore's error as one of ours; anything that is not botocore's is returned as it is."""
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
        return _answered(error.response)
    if not isinstance(error, BotoCoreError):
        return error
    named: tuple[tuple[type[BotoCoreError], str], ...] = (
        (NoCredentialsError, "MissingCredentials"),
        (PartialCredentialsError, "MissingCredentials"),
        (CredentialRetrievalError, "MissingCredentials"),
        (ParamValidationError, "ValidationError"),
        (HTTPClientError, "Unreachable"),
        (BotoConnectionError, "Unreachable"),
    )
    code = next((code for kind, code in named if isinstance(error, kind)), "")
    if code:
        return error_codes.error(code, str(error))
    # What botocore can't read was sent all the same: the call may have been carried out.
    return CloudUnreachable(str(error)[:SAID], code=type(error).__name__)


def _answered(response: Mapping[str, Any]) -> CloudError:
    detail = response.get("Error") or {}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return error_codes.answer(
        str(detail.get("Code") or ""), status, str(detail.get("Message") or "")
    )
