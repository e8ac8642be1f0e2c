"""Signers of requests: the account's owner, a role's session, or nobody that AWS knows.

Signatures are not verified. Keys are: only the owner's key and keys of sessions are accepted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from moto.iam.models import iam_backends
from moto.sts.models import AssumedRole, sts_backends

from toolkit.local.aws.iam.assume_role import TAGS_FIELD
from toolkit.local.options import ACCOUNT, ADMIN_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

ROTATION: Final = 3600
"""Seconds between two sets of an instance's credentials."""
LIFE: Final = 6 * 3600
"""Seconds that one set is good for."""
_PARTITION: Final = "aws"
_STS_REGION: Final = "us-east-1"  # moto's table of sessions that are not a region's
_CREDENTIAL: Final = re.compile(r"Credential=([^/,\s]+)/")
_QUERY_CREDENTIAL: Final = re.compile(r"(?:^|&)X-Amz-Credential=([^&]+)")


@dataclass(frozen=True, slots=True)
class Session:
    """A role's temporary credentials."""

    role: str
    name: str
    key: str
    secret: str
    token: str
    since: float
    until: float
    instance: str = ""
    """ARN of the instance that the credentials were given to; empty after AssumeRole."""
    tags: tuple[tuple[str, str], ...] = ()
    """Session tags, of AssumeRole alone."""

    @property
    def arn(self) -> str:
        """Return the session's own ARN, which refusals name."""
        return f"arn:{_PARTITION}:sts::{ACCOUNT}:assumed-role/{self.role}/{self.name}"

    def document(self) -> str:
        """Return the credentials as the metadata service writes them."""
        return json.dumps(
            {
                "Code": "Success",
                "LastUpdated": iso(self.since),
                "Type": "AWS-HMAC",
                "AccessKeyId": self.key,
                "SecretAccessKey": self.secret,
                "Token": self.token,
                "Expiration": iso(self.until),
            }
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """The key and the session token that a request came with."""

    key: str
    token: str


class Sessions:
    """The sessions of all instances' roles, by access key."""

    def __init__(self) -> None:
        """Begin without one, and with a secret that makes keys unguessable."""
        self._seed = secrets.token_bytes(32)
        self._by_key: dict[str, Session] = {}

    def of_instance(self, instance_id: str, region: str, role: str, now: float) -> Session:
        """Return an instance's session of this hour; another hour gives another."""
        since = now - now % ROTATION
        message = f"{instance_id}/{role}/{since}".encode()
        seed = hmac.new(self._seed, message, hashlib.sha256).digest()
        key = f"ASIA{base64.b32encode(seed).decode()[:16]}"
        session = self._by_key.get(key)
        if session is None:
            session = Session(
                role=role,
                name=instance_id,
                key=key,
                secret=base64.b64encode(seed).decode()[:40],
                token=base64.b64encode(seed * 3).decode(),
                since=since,
                until=since + LIFE,
                instance=f"arn:{_PARTITION}:ec2:{region}:{ACCOUNT}:instance/{instance_id}",
            )
            self._add(session, now)
        return session

    def _add(self, session: Session, now: float) -> None:
        for key in [key for key, old in self._by_key.items() if old.until + LIFE < now]:
            del self._by_key[key]
        self._by_key[session.key] = session
        _tell_moto(session)

    def find(self, key: str) -> Session | None:
        """Return an access key's session, of an instance or of AssumeRole."""
        return self._by_key.get(key) or _assumed(key)


def is_admin(signature: Signature) -> bool:
    """Return whether the account's owner signed: `toolkit local up` writes that key."""
    return signature.key == ADMIN_KEY


def signature_of(environ: Mapping[str, Any]) -> Signature | None:
    """Return the signature of a header or of a presigned URL."""
    header = _CREDENTIAL.search(str(environ.get("HTTP_AUTHORIZATION", "")))
    if header:
        return Signature(header[1], str(environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "")))
    query = str(environ.get("QUERY_STRING", ""))
    presigned = _QUERY_CREDENTIAL.search(query)
    if presigned is None:
        return None
    token = re.search(r"(?:^|&)X-Amz-Security-Token=([^&]+)", query)
    return Signature(unquote(presigned[1]).partition("/")[0], unquote(token[1]) if token else "")


def _tell_moto(session: Session) -> None:
    """Let GetCallerIdentity answer with the session's ARN."""
    known = AssumedRole(
        account_id=ACCOUNT,
        region_name=_STS_REGION,
        access_key=SimpleNamespace(  # these two are all that is read
            access_key_id=session.key, secret_access_key=session.secret
        ),
        role_session_name=session.name,
        role_arn=f"arn:{_PARTITION}:iam::{ACCOUNT}:role/{session.role}",
        policy="",
        duration=LIFE,
        external_id="",
    )
    known.session_token = session.token
    sts_backends[ACCOUNT][_PARTITION].assumed_roles.append(known)


def _assumed(key: str) -> Session | None:
    """Return a session that moto's AssumeRole gave."""
    found = sts_backends[ACCOUNT][_PARTITION].get_assumed_role_from_access_key(key)
    if found is None:
        return None
    until = found.expiration.replace(tzinfo=UTC).timestamp()  # moto's has no zone
    name = str(found.role_arn).rpartition("/")[2]
    return Session(
        role=name,
        name=str(found.session_name),
        key=key,
        secret=str(found.secret_access_key),
        token=str(found.session_token),
        since=until - LIFE,
        until=until,
        tags=tuple(getattr(found, TAGS_FIELD, {}).items()),
    )


def role_of_profile(arn: str) -> str | None:
    """Return the name of the role in an instance profile."""
    for profile in iam_backends[ACCOUNT][_PARTITION].instance_profiles.values():
        if profile.arn == arn and profile.roles:
            return str(profile.roles[0].name)
    return None


def iso(moment: float) -> str:
    """Return a moment as the metadata service writes it."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
