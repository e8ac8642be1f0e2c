"""The SSH keys of users: a plain public key passes, anything else is refused at its line."""

import base64
import struct
import subprocess

import pytest

from tests.unit.config.test_bad_input import found, line_of
from tests.unit.config.test_load import edited
from toolkit.config import parse
from toolkit.config.ssh_keys import key_parts


def blob(*fields: bytes) -> str:
    """Return the base64 of length-prefixed fields."""
    return base64.b64encode(
        b"".join(struct.pack(">I", len(field)) + field for field in fields)
    ).decode()


ED25519 = f"ssh-ed25519 {blob(b'ssh-ed25519', b'k' * 32)}"
OTHER = f"ssh-ed25519 {blob(b'ssh-ed25519', b'o' * 32)}"
SHORT_RSA = f"ssh-rsa {blob(b'ssh-rsa', bytes([1, 0, 1]), bytes([0, 255, *([1] * 127)]))}"
USER = "{name: ada, uid: 2001, account: vision}"


def with_keys(*keys: str) -> str:
    """Return the good file with ada's keys, one a line."""
    lines = "".join(f"\n      - {key}" for key in keys)
    return edited(
        f"  - {USER}",
        f"  - name: ada\n    uid: 2001\n    account: vision\n    ssh_keys:{lines}",
    )


@pytest.mark.parametrize(
    "options",
    [["ed25519"], ["rsa", "-b", "2048"], ["ecdsa", "-b", "256"], ["ecdsa", "-b", "521"]],
    ids="-".join,
)
def test_a_key_that_ssh_keygen_makes_is_taken_without_its_comment(options, tmp_path):
    path = tmp_path / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", *options, "-N", "", "-C", "ada@laptop", "-f", str(path)],
        check=True,
    )
    line = path.with_suffix(".pub").read_text().strip()
    assert parse(with_keys(line)).users[0].ssh_keys == (" ".join(line.split()[:2]),)


def test_a_security_key_is_taken():
    kind = b"sk-ssh-ed25519@openssh.com"
    line = f"{kind.decode()} {blob(kind, b'k' * 32, b'ssh:')}"
    assert parse(with_keys(line)).users[0].ssh_keys == (line,)


PRIVATE = "-----BEGIN OPENSSH " + "PRIVATE KEY-----"  # whole, it would be a find of lint
HOSTILE = {
    "an option before the key": f"'command=\"/bin/sh\" {ED25519}'",
    "a second line": f'"{ED25519}\\n{OTHER}"',
    "a carriage return": f'"{ED25519}\\r{OTHER}"',
    "a null byte": f'"{ED25519}\\0"',
    "a certificate authority": f"'cert-authority {ED25519}'",
    "a private key": f'"{PRIVATE}"',
    "an old type": f"ssh-dss {blob(b'ssh-dss', b'k' * 128)}",
    "another type inside": f"ssh-ed25519 {blob(b'ssh-rsa', b'k' * 32)}",
    "a cut key": ED25519[:-8],
    "a key of the wrong size": f"ssh-ed25519 {blob(b'ssh-ed25519', b'k' * 31)}",
    "one field more": f"ssh-ed25519 {blob(b'ssh-ed25519', b'k' * 32, b'more')}",
    "a short RSA key": SHORT_RSA,
    "no base64": "ssh-ed25519 AAAA_-",
    "a type alone": "ssh-ed25519",
    "a file's name": "/home/ada/.ssh/id_ed25519.pub",
    "a number": "12",
}


@pytest.mark.parametrize("key", HOSTILE.values(), ids=HOSTILE.keys())
def test_anything_but_a_public_key_is_refused_at_its_line(key):
    text = with_keys(OTHER, key)
    problems = found(text)
    place = "users[0].ssh_keys[1]"
    assert [(path, line) for path, line, _ in problems] == [(place, line_of(text, OTHER) + 1)]
    assert problems[0][2].startswith("expected ")


def test_a_private_key_is_called_one():
    with pytest.raises(ValueError, match="this is a private one"):
        key_parts(PRIVATE)


def test_a_key_of_two_users_is_refused_at_the_second():
    grace = f"{{name: grace, uid: 2002, account: vision, ssh_keys: [{ED25519} grace]}}"
    text = edited(f"  - {USER}", f"  - {USER[:-1]}, ssh_keys: [{ED25519}]}}\n  - {grace}")
    assert found(text) == [
        (
            "users[1].ssh_keys[0]",
            line_of(text, "grace"),
            "this key is listed already, for ada; a key belongs to one user",
        )
    ]
