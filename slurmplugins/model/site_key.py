"""The key of a site's Slurm, as the secret of a join holds it.

A site's key may be any bytes, and a secret is text.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Final

from slurmplugins.errors import BootError
from slurmplugins.model import json_input

MUNGE, SLURM_KEY, SLURM_JWKS = "munge.key", "slurm.key", "slurm.jwks"
NAMES: Final = (MUNGE, SLURM_KEY, SLURM_JWKS)
SHORTEST: Final = {MUNGE: 32, SLURM_KEY: 16, SLURM_JWKS: 2}
"""Bytes that munged and auth/slurm take at least."""


@dataclass(frozen=True, slots=True)
class SiteKey:
    """A key file of the site's. Its content is in no message."""

    name: str
    content: bytes = field(repr=False)

    def secret(self) -> str:
        """Return the secret's text."""
        content = base64.b64encode(self.content).decode()
        return json.dumps({"file": self.name, "base64": content})


def parse(secret: str) -> SiteKey:
    """Read the secret. Raises BootError, without any of it in the message."""
    try:
        data = json_input.loads(secret)
        name = str(data["file"])
        content = base64.b64decode(data["base64"], validate=True)
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise BootError("the secret is no key of a site: `toolkit join apply` sets it") from error
    if name not in NAMES:
        raise BootError(f"the secret has a key for another file: {name[:40]!r}")
    if len(content) < SHORTEST[name]:
        raise BootError(f"the secret's {name} is shorter than {SHORTEST[name]} bytes")
    return SiteKey(name, content)
