"""Rotates Slurm's key while the cluster works: two keys are valid until every daemon has both.

    add      the new key is accepted everywhere, the old one signs
    switch   the new key signs, the old one is still accepted
    drop     after the overlap, the old key is refused

Secrets Manager holds the keys, and so the step that was reached. A rotation that was killed goes on
where it was. Each step begins only when the head and every node have the keys of the last one.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BootError
from slurmplugins.model import slurm_keys
from toolkit.deploy import names
from toolkit.errors import KeyNotTaken, SecretUnusable, SlurmTooOld
from toolkit.head_runner import SlurmAnswerError
from toolkit.polling import Wait
from toolkit.render.options import unsupported_reason
from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_secretsmanager import SecretsManagerClient

    from slurmplugins.model.slurm_keys import KeySet
    from toolkit.config import ClusterConfig
    from toolkit.head_runner import Runner
    from toolkit.output import Phase, Reporter

PROGRAM: Final = "/opt/slurm-toolkit/bin/slurm-key"
KEY_BYTES: Final = 48
ID_BYTES: Final = 8
TAKE_SECONDS: Final = 300.0
MOST_NAMED: Final = 10


class Step(StrEnum):
    """The next step of a rotation."""

    ADD = "add a new key"
    SWITCH = "sign with the new key"
    DROP = "drop the old key"


@dataclass(frozen=True, slots=True)
class HeadAnswer:
    """The keys that the head has, and the nodes that lack them."""

    generation: str
    confirmed: str
    """The keys that all daemons had before; empty before any rotation."""
    lacking: tuple[str, ...]


def next_step(keys: KeySet) -> Step:
    """Return the step that follows when all daemons have these keys."""
    if len(keys.key_ids) == 1:
        return Step.ADD
    return Step.SWITCH if keys.signing_id == keys.key_ids[0] else Step.DROP


def after(keys: KeySet, step: Step) -> KeySet:
    """Return the keys that the step makes of these."""
    if step is Step.ADD:
        return keys.with_key(f"key-{secrets.token_hex(ID_BYTES)}", secrets.token_bytes(KEY_BYTES))
    if step is Step.SWITCH:
        return keys.signing_with(keys.key_ids[-1])
    return keys.without(keys.key_ids[0])


def check_version(config: ClusterConfig) -> None:
    """Raise SlurmTooOld if this Slurm knows one key only."""
    reason = unsupported_reason("AuthInfo", "jwks", SlurmVersion.parse(config.slurm.version))
    if reason is not None:
        raise SlurmTooOld(
            f"slurm.jwks, with which two keys are valid at once: {reason}",
            next_step="move to a cluster with a newer slurm.version; it has a key of its own",
        )


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotation of one cluster's key."""

    config: ClusterConfig
    secrets: SecretsManagerClient
    head: Runner
    reporter: Reporter
    wait_seconds: float
    overlap_seconds: float
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def read(self) -> KeySet:
        """Return the cluster's keys. Raises SecretUnusable."""
        answer = self.secrets.get_secret_value(SecretId=names.secret(self.config))
        try:
            return slurm_keys.parse(answer["SecretString"])
        except BootError as error:
            raise SecretUnusable(
                f"{names.secret(self.config)}: {error.message}",
                next_step="restore an earlier version of the secret, in Secrets Manager",
            ) from error

    def run(self) -> str:
        """Rotate the key, or complete a rotation; return what was done.

        Raises KeyNotTaken when a node does not take the keys in time. Safe to repeat.
        """
        keys = self.read()
        confirmed = self._spread(keys, "See that all daemons have the keys")
        # The last rotation was killed after its last step, before all daemons had its key.
        if len(keys.key_ids) == 1 and confirmed not in {"", keys.generation}:
            return f"completed the rotation: the key {keys.signing_id} alone is valid"
        while True:
            step = next_step(keys)
            if step is Step.DROP:
                self._wait_for_overlap()
            keys = after(keys, step)
            self.secrets.put_secret_value(
                SecretId=names.secret(self.config), SecretString=keys.text
            )
            self._spread(keys, step.value.capitalize())
            if step is Step.DROP:
                return f"the key {keys.signing_id} alone is valid"

    def _spread(self, keys: KeySet, title: str) -> str:
        """Wait until head and nodes have the keys.

        Returns the generation that all of them had before.
        """
        with self.reporter.phase(title) as phase:
            wait = Wait(self.wait_seconds, self.sleep, self.clock)
            first = answer = self._take()
            while answer.generation != keys.generation or answer.lacking:
                if wait.is_over:
                    raise _not_taken(keys, answer)
                self._show(phase, answer)
                wait.pause()
                answer = self._take()
            phase.result("head and all nodes have the keys")
            return first.confirmed

    def _take(self) -> HeadAnswer:
        aws = self.config.aws
        argv = [PROGRAM, "take", names.secret(self.config), aws.region]
        argv += [aws.endpoint_url] if aws.endpoint_url else []
        text = self.head.run(argv, timeout=TAKE_SECONDS)
        try:
            value = json.loads(text)
            return HeadAnswer(
                str(value["generation"]),
                str(value["confirmed"]),
                tuple(map(str, value["lacking"])),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise SlurmAnswerError("slurm-key on the head node gave no JSON") from error

    def _wait_for_overlap(self) -> None:
        with self.reporter.phase("Wait for credentials of the old key to end") as phase:
            phase.result(f"{self.overlap_seconds:.0f} s")
            self.sleep(self.overlap_seconds)

    def _show(self, phase: Phase, answer: HeadAnswer) -> None:
        count = len(answer.lacking)
        phase.update(f"{count} {'node lacks' if count == 1 else 'nodes lack'} the keys")


def _not_taken(keys: KeySet, answer: HeadAnswer) -> KeyNotTaken:
    if answer.generation != keys.generation:
        return KeyNotTaken(
            "the head node read other keys than were written",
            next_step="another rotation may be running: wait for it, then run this again",
        )
    nodes = ", ".join(answer.lacking[:MOST_NAMED])
    more = len(answer.lacking) - MOST_NAMED
    return KeyNotTaken(
        f"these nodes did not take the keys: {nodes}{f' and {more} more' if more > 0 else ''};"
        " no key was dropped",
        next_step="`toolkit why NODE`; power down a node that can't be mended, then run this again",
    )
