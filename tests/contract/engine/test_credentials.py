"""Credentials of the instance's role from a slow or absent metadata service."""

from __future__ import annotations

import http.server
import json
import shlex
import threading
import time
from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud.client import client
from slurmplugins.cloud.ec2 import Ec2
from slurmplugins.config import paths
from slurmplugins.errors import CloudUnreachable, NoCredentials

if TYPE_CHECKING:
    from pathlib import Path

HERE = "http://127.0.0.1:1"


class SlowMetadata(http.server.BaseHTTPRequestHandler):
    """A metadata service whose token takes longer than botocore's default wait."""

    def do_PUT(self) -> None:
        time.sleep(1.2)
        self._say("token")

    def do_GET(self) -> None:
        if self.headers["X-aws-ec2-metadata-token"] != "token":
            self.send_error(401)
        elif self.path.endswith("/"):
            self._say("role")
        else:
            keys = {"AccessKeyId": "x", "SecretAccessKey": "x", "Token": "x"}
            self._say(json.dumps({**keys, "Expiration": "2999-01-01T00:00:00Z"}))

    def _say(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def nothing_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without credentials, except those of the instance's role."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))


@pytest.mark.usefixtures("nothing_at_hand")
def test_a_metadata_service_that_takes_more_than_a_second_has_credentials(
    monkeypatch: pytest.MonkeyPatch,
):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowMetadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        made = client("ec2", "eu-central-1", HERE)
        server.shutdown()
    assert made.meta.region_name == "eu-central-1"


@pytest.mark.usefixtures("nothing_at_hand")
def test_credentials_that_were_not_found_are_looked_for_again_at_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    cloud = Ec2("demo", lambda: client("ec2", "eu-central-1", HERE))
    with pytest.raises(NoCredentials):
        cloud.instances()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with pytest.raises(CloudUnreachable):
        cloud.instances()


@pytest.mark.usefixtures("nothing_at_hand")
def test_a_sites_controller_has_the_credentials_that_our_file_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Take them from the site's own file."""
    keys = tmp_path / "keys"
    keys.write_text("[burst]\naws_access_key_id = AKIASITE\naws_secret_access_key = x\n")
    (tmp_path / "site.json").write_text(
        json.dumps({"nodes": "gpu-001", "credentials_file": str(keys)})
    )
    monkeypatch.setattr(paths, "SITE", tmp_path / "site.json")
    monkeypatch.setattr(paths, "AWS_CONFIG", tmp_path / "aws-config")
    answer = json.dumps({"Version": 1, "AccessKeyId": "ASIAANYWHERE", "SecretAccessKey": "x"})
    process = shlex.join(["/usr/bin/echo", answer])
    paths.AWS_CONFIG.write_text(f"[default]\ncredential_process = {process}\n")
    assert _access_key() == "ASIAANYWHERE"
    paths.AWS_CONFIG.write_text("[default]\nregion = us-east-1\n[profile burst]\n")
    monkeypatch.setenv("AWS_PROFILE", "burst")
    assert _access_key() == "AKIASITE"


def _access_key() -> str:
    return str(client("ec2", "us-east-1", HERE)._request_signer._credentials.access_key)
