#!/usr/bin/python3 -I
"""Write a secret of Secrets Manager to a file that only its owner can read.

Prints `changed` or `unchanged`, never the secret. The file is created with its final mode and
renamed into place: at no time can another user open it, or see half of it.
"""

from __future__ import annotations

import argparse
import os
import pwd
import sys
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

SHORTEST = 32
"""Bytes; auth/slurm itself would take 17."""
MODE = 0o600


def main(arguments: list[str]) -> int:
    """Fetch the secret, and replace the file if it differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secret-id", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--endpoint-url", default="")
    parser.add_argument("--dest", type=Path, required=True)
    parser.add_argument("--owner", required=True)
    options = parser.parse_args(arguments)
    try:
        secret = fetch(options.secret_id, options.region, options.endpoint_url or None)
    except (BotoCoreError, ClientError) as error:
        print(f"{options.secret_id}: {error}", file=sys.stderr)
        return 1
    if len(secret) < SHORTEST:
        print(f"{options.secret_id}: shorter than {SHORTEST} bytes", file=sys.stderr)
        return 1
    print("changed" if replace(options.dest, secret, options.owner) else "unchanged")
    return 0


def fetch(secret_id: str, region: str, endpoint_url: str | None) -> bytes:
    """Return the secret's text as bytes."""
    patience = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 3})
    client = boto3.client(
        "secretsmanager", region_name=region, endpoint_url=endpoint_url, config=patience
    )
    text: str = client.get_secret_value(SecretId=secret_id)["SecretString"]
    return text.encode()


def replace(dest: Path, content: bytes, owner: str) -> bool:
    """Write DEST with its owner and mode; return False if it was right already."""
    account = pwd.getpwnam(owner)
    if dest.is_file() and dest.read_bytes() == content:
        status = dest.stat()
        if (status.st_mode & 0o777, status.st_uid) == (MODE, account.pw_uid):
            return False
    fresh = dest.with_name(f".{dest.name}.{os.getpid()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE)
    try:
        os.fchown(handle, account.pw_uid, account.pw_gid)
        os.write(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)
    fresh.rename(dest)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
