"""Remove secrets from texts of others: errors, tracebacks, and lines that leave the instance."""

from __future__ import annotations

import re
from typing import Final

SECRET_WORDS: Final = ("secret", "password", "token", "credential", "slurm_key")
"""A name with one of these words says that its value is secret."""

REDACTED: Final = "[redacted]"

_KEY_ID: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", re.ASCII)
"""Ids of access keys (IAM User Guide, "Unique identifiers")."""

_ASSIGNMENT: Final = re.compile(
    rf"([\w.-]*(?:{'|'.join(SECRET_WORDS)})[\w.-]*[\"']?\s*[=:]\s*[\"']?)([^\s\"',;&]+)",
    re.IGNORECASE | re.ASCII,
)
"""A value behind a name that says that it is secret: `db_password=…`, `"SecretKey": "…"`."""

_BEARER: Final = re.compile(r"\b(Bearer\s+)\S+", re.IGNORECASE | re.ASCII)


def without_secrets(text: str) -> str:
    """Return the text with each secret value replaced."""
    text = _KEY_ID.sub(REDACTED, text)
    text = _BEARER.sub(rf"\1{REDACTED}", text)
    return _ASSIGNMENT.sub(rf"\1{REDACTED}", text)
