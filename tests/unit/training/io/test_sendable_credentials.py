"""Credentials that no HTTP header can carry: refused, and not shown."""

import pytest

from toolkit.training.io.s3_client import s3_client
from toolkit.training.io.sendable_credentials import UnsendableCredentialsError


@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"])
@pytest.mark.parametrize("text", ["first\nplanted", "plan\u0142ted", "planted\x7f"])
def test_credentials_that_no_header_can_carry_are_named_and_not_shown(monkeypatch, variable, text):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv(variable, text)
    with pytest.raises(UnsendableCredentialsError, match="such as a newline") as error:
        s3_client(1).list_buckets()
    assert "plan" not in str(error.value)
