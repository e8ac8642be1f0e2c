"""The rotation of Slurm's key: its steps, kills between them, nodes that do not follow."""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import count

import pytest

from slurmplugins.model import slurm_keys
from tests.fakes.clock import FakeClock
from tests.unit.render.render_samples import a_config
from toolkit.deploy.key_rotation import Rotation, Step, check_version, next_step
from toolkit.errors import KeyNotTaken, SecretUnusable, SlurmTooOld

PLAIN = "k" * 64


class Killed(BaseException):
    """The process is killed."""


class Silent:
    """A reporter without output."""

    @contextmanager
    def phase(self, title):
        del title
        yield self

    def update(self, detail, **_):
        pass

    def result(self, text):
        pass

    def line(self, text):
        pass


class World:
    """Secrets Manager, and a head whose nodes follow one call later."""

    def __init__(self) -> None:
        self.secret, self.wanted, self.confirmed, self.history = PLAIN, "", "", []
        self.stuck, self.lacking, self.calls, self.die_at = False, (), count(1), 0
        self.clock = FakeClock()

    def boundary(self) -> None:
        if next(self.calls) == self.die_at:
            raise Killed

    def get_secret_value(self, SecretId):  # noqa: N803
        assert SecretId == "demo/slurm-key"
        return {"SecretString": self.secret}

    def put_secret_value(self, SecretId, SecretString):  # noqa: N803
        del SecretId
        self.boundary()
        self.secret = SecretString
        keys = slurm_keys.parse(SecretString)
        self.history.append((keys.key_ids, keys.signing_id, self.lacking))
        self.boundary()

    def run(self, argv, *, timeout):
        assert argv[1:] == ["take", "demo/slurm-key", "us-east-1", "http://127.0.0.1:4566"]
        assert timeout > 60
        self.boundary()
        generation, confirmed = slurm_keys.parse(self.secret).generation, self.confirmed
        is_new, self.wanted = generation != self.wanted, generation
        self.lacking = ("gpu-001",) if is_new or self.stuck else ()
        if not self.lacking:
            self.confirmed = generation
        return json.dumps(
            {"generation": generation, "confirmed": confirmed, "lacking": self.lacking}
        )

    def rotation(self) -> Rotation:
        return Rotation(
            a_config(), self, self, Silent(), wait_seconds=60, overlap_seconds=120,
            sleep=self.clock.sleep, clock=self.clock.monotonic,
        )  # fmt: skip


def test_the_new_key_signs_only_when_all_have_it_and_the_old_one_goes_last():
    world = World()
    world.rotation().run()
    (old, new) = world.history[0][0]
    assert old == "first"
    assert world.history == [
        ((old, new), old, ()),
        ((old, new), new, ()),
        ((new,), new, ()),
    ]


def test_the_old_key_is_accepted_for_the_overlap_after_its_last_signature():
    world = World()
    times = []
    put = world.put_secret_value

    def timed(**arguments):
        times.append(world.clock.monotonic())
        put(**arguments)

    world.put_secret_value = timed
    world.rotation().run()
    assert times[2] - times[1] >= 120


@pytest.mark.parametrize("die_at", range(1, 16))
def test_a_rotation_that_was_killed_at_any_call_is_completed_by_the_next(die_at):
    """End with one key, which is not the first.

    Never is a key dropped that signs, nor does one sign that a daemon lacks.
    """
    world = World()
    world.die_at = die_at
    try:
        world.rotation().run()
    except Killed:
        world.die_at = 0
        world.rotation().run()
    keys = slurm_keys.parse(world.secret)
    assert len(keys.key_ids) == 1
    assert keys.signing_id != "first"
    assert len({ids for ids, _, _ in world.history}) == 2, "one rotation, not two"
    for before, after in zip(world.history, world.history[1:], strict=False):
        assert after[1] in before[0], "it was accepted before it signed"
        assert before[1] in after[0], "what signed is still accepted"
        assert after[2] == ()


def test_a_node_that_does_not_follow_stops_the_rotation_and_is_named():
    world = World()
    world.stuck = True
    with pytest.raises(KeyNotTaken, match="gpu-001; no key was dropped"):
        world.rotation().run()
    assert world.history == []


def test_next_steps_follow_from_the_secret_alone():
    plain = slurm_keys.parse(PLAIN)
    both = plain.with_key("b", b"n" * 48)
    switched = both.signing_with("b")
    found = [next_step(keys) for keys in (plain, both, switched, switched.without("first"))]
    assert found == [Step.ADD, Step.SWITCH, Step.DROP, Step.ADD]


def test_a_damaged_secret_is_reported_without_its_text():
    world = World()
    world.secret = "{not a key"
    with pytest.raises(SecretUnusable, match="neither a key nor") as caught:
        world.rotation().run()
    assert "not a key" not in caught.value.message.replace("neither a key", "")


@pytest.mark.parametrize(("version", "refused"), [("23.11", True), ("24.05", False)])
def test_a_slurm_that_knows_one_key_only_is_refused(version, refused):
    config = a_config(slurm={"version": version})
    if not refused:
        check_version(config)
        return
    with pytest.raises(SlurmTooOld, match=r"needs Slurm 24\.05, this is 23\.11"):
        check_version(config)
