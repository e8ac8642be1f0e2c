"""Credentials of MLflow's role, in a file that MLflow alone can read.

MLflow's user can't reach the metadata service. Its SDK runs `cat` on this file as its
`credential_process`, and runs it again shortly before the credentials expire. The file's owner
and mode are what keeps other users out.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.model.credentials import Credentials

SESSION_NAME: Final = "mlflow"


def document(credentials: Credentials) -> bytes:
    """Return the output of a `credential_process` (AWS SDKs and Tools Reference Guide)."""
    expires = datetime.fromtimestamp(credentials.expires, UTC)
    return json.dumps(
        {
            "Version": 1,
            "AccessKeyId": credentials.key_id,
            "SecretAccessKey": credentials.secret,
            "SessionToken": credentials.token,
            "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
    ).encode()


def write(path: Path, credentials: Credentials, uid: int) -> None:
    """Replace the file with new credentials.

    At no moment can anybody but root and this user read it. Raises OSError.
    """
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    path.parent.chmod(0o711)  # whatever the umask is
    write_atomically(path, document(credentials), mode=0o400)
    os.chown(path, uid, -1)
