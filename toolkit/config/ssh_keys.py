"""The SSH public keys of users: what one line may hold.

The line ends in a file that sshd reads as root's word. There an option before the key, such as
`command=`, would change what the key may do (sshd(8), AUTHORIZED_KEYS FILE FORMAT).
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Annotated

from pydantic import AfterValidator, Field

MIN_RSA_BITS = 2048
ED25519_BYTES = 32
LONGEST_LINE = 4096
PAIR = 2  # fields after the type: exponent and modulus, or curve and point
_CURVES = {"nistp256": 65, "nistp384": 97, "nistp521": 133}  # bytes of an uncompressed point
KEY_TYPES = (
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    *(f"ecdsa-sha2-{curve}" for curve in _CURVES),
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
)


def key_parts(line: str) -> tuple[str, str]:
    """Return the type and the base64 part of a public key's line.

    A comment after them is dropped. Raises ValueError that says what is expected.
    """
    if "PRIVATE KEY" in line:
        raise ValueError(
            "expected a public key; this is a private one: replace the pair, and keep it secret"
        )
    if not line.isprintable() or not line.isascii():
        raise ValueError("expected one line of printable ASCII, as in ~/.ssh/id_ed25519.pub")
    kind, _, rest = line.partition(" ")
    if kind not in KEY_TYPES:
        raise ValueError(
            f"expected one of {', '.join(KEY_TYPES)} at the start, and no options before it"
        )
    encoded = rest.partition(" ")[0]
    try:
        blob = base64.b64decode(encoded, validate=True)
        fields = _fields(blob)
    except (binascii.Error, struct.error, ValueError) as error:
        raise ValueError("expected base64 of a whole key after its type") from error
    if not fields or fields[0] != kind.encode():
        raise ValueError(f"expected a key of type {kind}, as the line says")
    _check_size(kind, fields[1:])
    return kind, encoded


def _fields(blob: bytes) -> list[bytes]:
    """Return the length-prefixed fields of a key (RFC 4253, 6.6)."""
    fields: list[bytes] = []
    while blob:
        (size,) = struct.unpack_from(">I", blob)
        if len(blob) < 4 + size:
            raise ValueError("cut off")
        fields.append(blob[4 : 4 + size])
        blob = blob[4 + size :]
    return fields


def _check_size(kind: str, fields: list[bytes]) -> None:
    """Refuse a key whose numbers have another size than its type."""
    if kind == "ssh-rsa":
        _, modulus = fields if len(fields) == PAIR else (b"", b"")
        if int.from_bytes(modulus, "big").bit_length() < MIN_RSA_BITS:
            raise ValueError(
                f"expected an RSA key of {MIN_RSA_BITS} bits or more, or better ssh-ed25519"
            )
        return
    application = 1 if kind.startswith("sk-") else 0  # a security key names its use last
    if "ed25519" in kind:
        sizes = [len(field) for field in fields[: len(fields) - application]]
        whole = sizes == [ED25519_BYTES]
    else:
        curve = kind.partition("sha2-")[2].partition("@")[0]
        numbers = fields[: len(fields) - application]
        whole = len(numbers) == PAIR and numbers[0] == curve.encode()
        whole = whole and len(numbers[1]) == _CURVES[curve]
    if not whole:
        raise ValueError("expected base64 of a whole key after its type")


def _plain(line: str) -> str:
    return " ".join(key_parts(line))


SshKey = Annotated[str, Field(min_length=1, max_length=LONGEST_LINE), AfterValidator(_plain)]
"""A public key; as a value it has its type and base64 only."""
