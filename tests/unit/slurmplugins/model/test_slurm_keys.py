"""The cluster's keys, as text of the secret and as the steps of a rotation see them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from slurmplugins.errors import BootError
from slurmplugins.model import slurm_keys

PLAIN = "k" * 64
NEW = b"n" * 48


def entries(keys: slurm_keys.KeySet) -> list[dict[str, Any]]:
    return list(json.loads(keys.text)["keys"])


def test_the_stacks_plain_key_is_the_first_of_two_with_the_same_bytes():
    """Encode the plain key unchanged.

    Daemons that still have it as slurm.key must accept what it signs.
    """
    both = slurm_keys.parse(PLAIN).with_key("key-2", NEW)
    assert [base64.b64decode(entry["k"]) for entry in entries(both)] == [PLAIN.encode(), NEW]
    assert (both.key_ids, both.signing_id) == (("first", "key-2"), "first")


def test_the_new_key_signs_and_then_is_alone():
    both = slurm_keys.parse(PLAIN).with_key("key-2", NEW)
    switched = both.signing_with("key-2")
    assert (switched.key_ids, switched.signing_id) == (("first", "key-2"), "key-2")
    alone = switched.without("first")
    assert (alone.key_ids, alone.signing_id) == (("key-2",), "key-2")
    assert PLAIN not in alone.text


def test_each_step_has_a_generation_of_its_own_that_tells_no_key():
    plain = slurm_keys.parse(PLAIN)
    both = plain.with_key("key-2", NEW)
    steps = [plain, both, both.signing_with("key-2"), both.signing_with("key-2").without("first")]
    names = [keys.generation for keys in steps]
    assert len(set(names)) == len(names)
    assert names[0] == "first"
    other = plain.with_key("key-2", b"o" * 48)
    assert other.generation == both.generation


def test_what_is_written_is_read_again_as_the_same():
    both = slurm_keys.parse(PLAIN).with_key("key-2", NEW)
    assert slurm_keys.parse(both.text) == both


def jwks(*rows: dict[str, Any]) -> str:
    good = {"alg": "HS256", "kty": "oct", "kid": "a", "k": base64.b64encode(NEW).decode()}
    more = [good | {"kid": "b"} | row for row in rows]
    return json.dumps({"keys": [good | {"use": "default"}, *more]})


@pytest.mark.parametrize(
    "text",
    [
        "short",
        "{",
        '{"keys": {}}',
        '{"keys": []}',
        '{"keys": [1]}',
        jwks({"kid": "a"}),
        jwks({"use": "default"}),
        jwks({"alg": "none"}),
        jwks({"kty": "RSA"}),
        jwks({"k": "c2hvcnQ="}),
        jwks({"k": "not base64!"}),
        jwks({"kid": "../x"}),
    ],
)
def test_keys_that_slurm_would_refuse_are_refused_before(text):
    """Raise without the text: slurmd would not start with such a file."""
    with pytest.raises(BootError) as caught:
        slurm_keys.parse(text)
    assert "c2hvcnQ" not in str(caught.value)
