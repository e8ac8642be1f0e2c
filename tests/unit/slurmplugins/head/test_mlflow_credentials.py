"""MLflow's credentials: who can read them, and what its SDK makes of them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import botocore.session
import pytest

from slurmplugins.config import paths
from slurmplugins.head import mlflow_credentials
from slurmplugins.model.credentials import Credentials

CONFIG = Path(__file__).parents[4] / "ansible/roles/mlflow/files/aws.conf"
HOUR = 3600


def credentials(key: str = "ASIA1", seconds: float = HOUR) -> Credentials:
    return Credentials(key, "secret", "token", time.time() + seconds)


def test_the_file_belongs_to_mlflow_and_nobody_else_reads_it(tmp_path: Path):
    path = tmp_path / "mlflow/credentials.json"
    before = os.umask(0)
    try:
        for _ in range(2):
            mlflow_credentials.write(path, credentials(), os.getuid())
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o400
    assert path.stat().st_uid == os.getuid()
    assert path.parent.stat().st_mode & 0o777 == 0o711
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_the_document_is_that_of_a_credential_process():
    content = json.loads(mlflow_credentials.document(Credentials("A", "S", "T", 1_790_000_000.5)))
    assert content == {
        "Version": 1, "AccessKeyId": "A", "SecretAccessKey": "S", "SessionToken": "T",
        "Expiration": "2026-09-21T14:13:20Z",
    }  # fmt: skip


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Set up an SDK like MLflow's, and return its file of credentials."""
    path, config = tmp_path / "credentials.json", tmp_path / "aws.conf"
    text = CONFIG.read_text()
    assert str(paths.MLFLOW_CREDENTIALS) in text
    config.write_text(text.replace(str(paths.MLFLOW_CREDENTIALS), str(path)))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return path


def test_the_sdk_reads_the_file_again_before_its_credentials_expire(sdk: Path):
    mlflow_credentials.write(sdk, credentials("ASIA1", seconds=HOUR), os.getuid())
    session = botocore.session.get_session()
    found = session.get_credentials()
    assert found.get_frozen_credentials().access_key == "ASIA1"
    mlflow_credentials.write(sdk, credentials("ASIA2", seconds=300), os.getuid())
    assert found.get_frozen_credentials().access_key == "ASIA1", "not before it must"
    late = botocore.session.get_session().get_credentials()
    assert late.get_frozen_credentials().access_key == "ASIA2"
    mlflow_credentials.write(sdk, credentials("ASIA3"), os.getuid())
    assert late.get_frozen_credentials().access_key == "ASIA3"
