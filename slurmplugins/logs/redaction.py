"""Remove secrets from lines of other programs, before they leave the machine.

The toolkit's own logs have none (`system.logger`). This is the second lock.
"""

from __future__ import annotations

import re
from typing import Final

from slurmplugins.system.logger import SECRET_WORDS

REDACTED: Final = "[redacted]"

_KEY_ID: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", re.ASCII)
"""Ids of access keys (IAM User Guide, "Unique identifiers")."""

_ASSIGNMENT: Final = re.compile(
    rf"((?<![\w.-])(?=[\w.-]*(?:{'|'.join(SECRET_WORDS)}))[\w.-]*+[\"']?\s*[=:]\s*[\"']?)"
    r"([^\s\"',;&]+)",
    re.IGNORECASE | re.ASCII,
)
"""A value behind a name that says that it is secret: `db_password=…`, `"SecretKey": "…"`."""

_BEARER: Final = re.compile(r"\b(Bearer\s+)\S+", re.IGNORECASE | re.ASCII)


def without_secrets(text: str) -> str:
    """Return the line with each secret value replaced."""
    text = _KEY_ID.sub(REDACTED, text)
    text = _BEARER.sub(rf"\1{REDACTED}", text)
    return _ASSIGNMENT.sub(rf"\1{REDACTED}", text)
