"""botocore's errors as the toolkit's errors, and the credentials that are used."""

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError, ProfileNotFound

from tests.unit.deploy.samples import example, refusal
from toolkit.deploy.session import Clients, connected
from toolkit.errors import (
    AccessDenied,
    CredentialsMissing,
    EndpointUnreachable,
    RequestRefused,
)


@pytest.fixture(autouse=True)
def _own_credentials(monkeypatch):
    """Hide the credentials of the person who runs the tests."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")


def bare(**aws):
    config = example("aws")
    return config.model_copy(update={"aws": config.aws.model_copy(update=aws)})


@pytest.mark.parametrize(
    ("error", "expected", "step"),
    [
        (refusal("UnauthorizedOperation"), AccessDenied, "permission for Operation"),
        (refusal("ExpiredToken"), CredentialsMissing, "renew"),
        (refusal("InvalidParameterValue"), RequestRefused, ""),
        (NoCredentialsError(), CredentialsMissing, "aws configure"),
        (ProfileNotFound(profile="x"), CredentialsMissing, "aws.profile"),
        (EndpointConnectionError(endpoint_url="http://x"), EndpointUnreachable, "us-east-1"),
    ],
)
def test_each_aws_error_becomes_one_toolkit_error_with_a_next_step(error, expected, step):
    """Raise only the toolkit's errors to commands."""
    with pytest.raises(expected) as caught, connected(bare()):
        raise error
    assert step in caught.value.next_step


def test_an_unreachable_endpoint_names_toolkit_local_up():
    """Suggest `toolkit local up` if an endpoint_url is set.

    Nothing listening there is the likeliest cause.
    """
    config = bare(endpoint_url="http://127.0.0.1:1")
    with pytest.raises(EndpointUnreachable) as caught, connected(config):
        raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    assert "toolkit local up" in caught.value.next_step


def test_a_session_token_that_no_header_can_carry_is_named_and_not_shown(monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "first\nplanted")
    config = bare(endpoint_url="http://127.0.0.1:1")
    refused = pytest.raises(CredentialsMissing, match="such as a newline")
    with refused as caught, connected(config) as clients:
        clients.client("sts").get_caller_identity()
    assert "planted" not in f"{caught.value} {caught.value.next_step}"


def test_credentials_are_read_from_the_configured_file_and_profile(tmp_path):
    """Read the file that cluster.yaml names, without environment variables."""
    path = tmp_path / "credentials"
    path.write_text("[local]\naws_access_key_id = AK\naws_secret_access_key = SK\n")
    clients = Clients(bare(credentials_file=str(path), profile="local"))
    assert clients.client("s3")._request_signer._credentials.access_key == "AK"


def test_a_missing_credentials_file_is_an_error_at_once(tmp_path):
    """Fail before any request, and tell the way to get the file."""
    with pytest.raises(CredentialsMissing, match="doesn't exist"):
        Clients(bare(credentials_file=str(tmp_path / "none"), profile="local"))


def test_a_client_is_created_once():
    """Share clients, because they are costly to make and safe to share."""
    clients = Clients(bare())
    assert clients.client("ec2") is clients.client("ec2")
