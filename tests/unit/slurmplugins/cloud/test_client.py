"""Creation of boto3 clients."""

from __future__ import annotations

import pytest
from botocore.credentials import DeferredRefreshableCredentials
from botocore.loaders import Loader
from botocore.session import Session

from slurmplugins.cloud.client import client
from slurmplugins.errors import NoCredentials

HERE = "http://127.0.0.1:1"
ROLE = {
    "access_key": "x",
    "secret_key": "x",
    "token": "x",
    "expiry_time": "2999-01-01T00:00:00Z",
    "account_id": "1",
}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")


def test_a_clients_credentials_are_there_before_its_first_call(monkeypatch: pytest.MonkeyPatch):
    fetched: list[str] = []
    role = DeferredRefreshableCredentials(
        lambda: fetched.append("role") or ROLE,  # type: ignore[func-returns-value]
        "assume-role",
    )
    monkeypatch.setattr(Session, "get_credentials", lambda _: role)
    client("ec2", "eu-central-1", HERE)
    assert fetched == ["role"]


@pytest.mark.parametrize("service", ["ec2", "s3", "secretsmanager"])
def test_a_client_is_made_without_listing_botocores_services(
    service: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(Loader, "list_available_services")
    made = client(service, "eu-central-1", HERE)
    assert made.meta.service_model.service_name == service
    assert (made.meta.region_name, made.meta.endpoint_url) == ("eu-central-1", HERE)


@pytest.mark.parametrize("value", ["PLANTED\n", "first\nPLANTED", "PLANTED\r", "PLANTED\u2019"])
@pytest.mark.parametrize(
    ("name", "words"), [("AWS_ACCESS_KEY_ID", "key id"), ("AWS_SESSION_TOKEN", "session token")]
)
def test_credentials_that_no_header_can_carry_are_refused_and_not_quoted(
    name: str, words: str, value: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(name, value)
    with pytest.raises(NoCredentials, match=f"the {words} of the AWS") as refused:
        client("ec2", "eu-central-1", HERE)
    assert "PLANTED" not in str(refused.value)
