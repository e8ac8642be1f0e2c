"""Job tokens: a file by which a job's processes prove to the credential broker whose they are.

    /run/slurm-toolkit/jobs/4711/token        0400, of the job's user: the proof
    /run/slurm-toolkit/jobs/4711/record.json  0600, of root: the token's hash, user, account, uid

The Prolog writes both and the Epilog removes them. Each start of a job has a new token. A TCP
connection does not tell who opened it, so the file's permissions are what keeps other users out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BadName
from slurmplugins.model import json_input
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOKEN: Final = "token"  # noqa: S105 - a file's name
RECORD: Final = "record.json"
RANDOM_BYTES: Final = 32
NO_ACCOUNT: Final = "none"
"""The account of a job on a cluster without accounting. STS refuses no value, our role does."""

_TOKEN: Final = re.compile(r"([1-9][0-9]{0,9})\.[0-9a-f]{64}", re.ASCII)
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}", re.ASCII)
"""A user's name becomes part of a prefix in S3: no slash, no wildcard, no variable."""
_ACCOUNT: Final = re.compile(r"[\w.:/=+@ -]{1,128}", re.ASCII)
"""Characters that a session tag may have (STS API reference, Tag)."""


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """The facts about a job that slurmd knows and the job can't change."""

    job: int
    """For a component of a het job: the id of the whole."""
    uid: int
    user: str
    account: str


def identity_of(environment: Mapping[str, str], user: str) -> JobIdentity:
    """Return the job of a Prolog's environment, which slurmd alone sets.

    SPANK variables, which a user may choose, have a prefix of their own (_build_env in
    prep_script_slurmd.c). Raises BadName when a value can't be a session tag.
    """
    job = job_of(environment)
    uid = environment.get("SLURM_JOB_UID", "")
    account = environment.get("SLURM_JOB_ACCOUNT") or NO_ACCOUNT
    if not uid.isdecimal():
        raise BadName(f"no uid: {uid!r}")
    if not _USER.fullmatch(user):
        raise BadName(f"the user name {user!r} can't be a prefix in S3")
    if not _ACCOUNT.fullmatch(account):
        raise BadName(f"the account {account!r} can't be a session tag")
    return JobIdentity(job, int(uid), user, account)


def job_of(environment: Mapping[str, str]) -> int:
    """Return the id under which a job's tasks find their token.

    Raises BadName.
    """
    # slurmstepd gives the tasks of a het job the id of the whole as SLURM_JOB_ID.
    text = environment.get("SLURM_HET_JOB_ID") or environment.get("SLURM_JOB_ID", "")
    if not re.fullmatch(r"[1-9][0-9]{0,9}", text, re.ASCII):
        raise BadName(f"no job id: {text!r}")
    return int(text)


def grant(directory: Path, identity: JobIdentity) -> None:
    """Write a new token for a job, replacing an older one.

    Nobody but its user and root can read it at any moment. After a failure the job has none, also
    no older one. Raises OSError.
    """
    folder = directory / str(identity.job)
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.mkdir(mode=0o711, exist_ok=True)
    folder.chmod(0o711)  # whatever umask slurmd has
    (folder / TOKEN).unlink(missing_ok=True)
    token = f"{identity.job}.{secrets.token_hex(RANDOM_BYTES)}"
    record = {**asdict(identity), "sha256": _hash(token)}
    write_atomically(folder / RECORD, json.dumps(record).encode(), mode=0o600)
    write_atomically(folder / TOKEN, token.encode(), mode=0o400)
    os.chown(folder / TOKEN, identity.uid, -1)


def revoke(directory: Path, job: int) -> None:
    """Remove a job's token. May be repeated. Raises OSError."""
    folder = directory / str(job)
    if folder.exists():
        shutil.rmtree(folder)


def identify(directory: Path, token: str) -> JobIdentity | None:
    """Return the job that has this token, or None."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    try:
        record = json_input.loads((directory / match[1] / RECORD).read_text(encoding="utf-8"))
        known_hash = str(record["sha256"])
        identity = JobIdentity(
            int(record["job"]), int(record["uid"]), str(record["user"]), str(record["account"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return identity if hmac.compare_digest(known_hash, _hash(token)) else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
