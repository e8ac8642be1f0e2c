"""Stage-in and stage-out over S3, by processes that are killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from tests.fakes import s3_server
from tests.fakes.datasets import tree, write_tree

pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).resolve().parent
# The big file has two parts in stage_processes.py.
CONTENT = {"small": b"1", "deep/er/small": b"22", "empty": b"", "big": bytes(range(256)) * 6}


def test_a_copy_killed_at_any_call_of_s3_is_whole_after_the_next_one(tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)  # in the server's process
    site, home = write_tree(tmp_path / "site", CONTENT), tmp_path / "home"
    home.mkdir()
    with s3_server.serving() as url:
        boto3.client("s3", endpoint_url=url).create_bucket(Bucket="between")
        done = subprocess.run(
            [sys.executable, str(HERE / "stage_processes.py"), str(site), str(home)],
            env=os.environ
            | {
                "PYTHONPATH": str(HERE.parents[2]),
                "AWS_ENDPOINT_URL": url,
                "XDG_CACHE_HOME": str(tmp_path / "memory"),
                "TOOLKIT_DATA_CACHE": str(tmp_path / "cache"),
                "TOOLKIT_SITE_FILE": str(tmp_path / "absent"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=800,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    counts = json.loads(done.stdout)
    assert counts["put"] > 12
    assert counts["get"] > 4
    assert counts["sent"][-1] == 0, "what a killed copy has sent is not sent again"
    folders = [path for path in home.iterdir() if path.is_dir()]
    assert len(folders) == counts["put"] + counts["get"] + 1
    assert not [path.name for path in folders if tree(path) != CONTENT]
