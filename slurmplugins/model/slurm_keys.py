"""The cluster's key as Secrets Manager holds it: a plain text, or the several keys of slurm.jwks.

The fields are those of https://slurm.schedmd.com/authentication.html#multiple_key_setup. A key that
has no `use` is accepted, the one with `"use": "default"` also signs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from slurmplugins.errors import BootError
from slurmplugins.model import json_input

SHORTEST_KEY: Final = 32
"""Bytes that a key has at least; Slurm itself takes 16."""
FIRST: Final = "first"
"""The id of the key that the stack made, and the generation of a cluster that has no other."""
_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeySet:
    """The cluster's keys at one time. Never in a message or log."""

    text: str
    key_ids: tuple[str, ...]
    signing_id: str
    is_jwks: bool

    @property
    def generation(self) -> str:
        """Return a name of this set that tells nothing of the keys."""
        if not self.is_jwks:
            return FIRST
        ids = json.dumps([self.key_ids, self.signing_id])
        return hashlib.sha256(ids.encode()).hexdigest()[:16]

    def with_key(self, key_id: str, key: bytes) -> KeySet:
        """Return the set with one more key, which signs nothing yet."""
        return _of([*self._entries(), _entry(key_id, key)])

    def signing_with(self, key_id: str) -> KeySet:
        """Return the set in which this key signs."""
        entries = [
            {name: value for name, value in entry.items() if name != "use"}
            | ({"use": "default"} if entry["kid"] == key_id else {})
            for entry in self._entries()
        ]
        return _of(entries)

    def without(self, key_id: str) -> KeySet:
        """Return the set that no longer accepts this key."""
        return _of([entry for entry in self._entries() if entry["kid"] != key_id])

    def _entries(self) -> list[dict[str, Any]]:
        if self.is_jwks:
            return list(json_input.loads(self.text)["keys"])
        return [_entry(FIRST, self.text.encode()) | {"use": "default"}]


def parse(text: str) -> KeySet:
    """Parse the secret.

    Raises BootError, which never holds a key.
    """
    if not text.lstrip().startswith("{"):
        if len(text) < SHORTEST_KEY:
            raise BootError(f"the cluster's key is shorter than {SHORTEST_KEY} characters")
        return KeySet(text, (FIRST,), FIRST, is_jwks=False)
    try:
        entries = json_input.loads(text)["keys"]
        key_ids = tuple(_checked_id(entry) for entry in entries)
        signing_ids = [entry["kid"] for entry in entries if entry.get("use") == "default"]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BootError("the cluster's secret is neither a key nor a list of keys") from None
    if len(set(key_ids)) != len(key_ids) or len(signing_ids) != 1:
        raise BootError("the cluster's keys need ids of their own, and one default key")
    return KeySet(text, key_ids, signing_ids[0], is_jwks=True)


def _checked_id(entry: dict[str, Any]) -> str:
    """Return the key's id.

    Raises ValueError if Slurm would not take the key: it would not start.
    """
    key = base64.b64decode(entry["k"], validate=True)
    names = entry["kty"], entry["alg"]
    if names != ("oct", "HS256") or len(key) < SHORTEST_KEY or not _ID.fullmatch(entry["kid"]):
        raise binascii.Error
    return str(entry["kid"])


def _entry(key_id: str, key: bytes) -> dict[str, Any]:
    encoded = base64.b64encode(key).decode()
    return {"alg": "HS256", "kty": "oct", "kid": key_id, "k": encoded}


def _of(entries: list[dict[str, Any]]) -> KeySet:
    return parse(json.dumps({"keys": entries}, separators=(",", ":")) + "\n")
