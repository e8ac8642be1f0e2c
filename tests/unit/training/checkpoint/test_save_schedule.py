"""The schedule of a run's saves, and their measured times."""

import itertools
import threading

import pytest

from tests.fakes import checkpoint_disk as disk
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.collective import rank0_only
from toolkit.training.checkpoint.save_schedule import Saver
from toolkit.training.checkpoint.tier import FolderTier
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointFailed
from toolkit.training.io.durable_files import write_atomic


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Far(FolderTier):
    """A tier that a stop does not wait for.

    A push waits for the gate, and a commit takes the given seconds.
    """

    def __init__(self, root, clock, seconds, *, outlives_notice=False) -> None:
        super().__init__(root, outlives_notice=outlives_notice)
        self._clock, self._seconds = clock, seconds
        self.gate = threading.Event()

    def push(self, folder, entries):
        assert self.gate.wait(10)
        super().push(folder, entries)

    def commit(self, folder):
        self._clock.now += self._seconds
        super().commit(folder)


@pytest.fixture
def saver(tmp_path, json_codec, part):
    """A class of savers, each with a tier and a clock.

    `told` lists the saves that a saver has reported.
    """

    class Made:
        def __init__(self, *, background, seconds=0.0, outlives_notice=False, every=1) -> None:
            self.clock, self.told = Clock(), []
            self.tier = Far(tmp_path / "far", self.clock, seconds, outlives_notice=outlives_notice)
            self.checkpoints = Checkpointer(
                tmp_path / "near",
                Solo(),
                codec=json_codec,
                tiers=(self.tier,),
                background=background,
                clock=self.clock,
            )
            self.saver = Saver(
                self.checkpoints,
                every=every,
                background=background,
                bounds=(30.0, 3600.0),
                clock=self.clock,
                log_line=lambda _: None,
                sync=lambda: None,
                on_saved=lambda *what: self.told.append(what),
            )
            self.saver.start_at(None, mtti=6 * 3600.0)

        def save(self, step, **how):
            return self.saver.save({"model": part()}, step, {}, **{"last": False, **how})

    return Made


def test_a_save_against_a_notice_waits_for_no_copy_that_the_one_in_the_background_makes(saver):
    made = saver(background=True)
    assert made.save(1) == ""
    assert made.save(2, last=True, urgent=True) == ""
    assert [saved.step for saved, _ in made.told] == [1, 2]
    assert len(made.checkpoints.committed()) == 2
    assert made.tier.names() == []


@pytest.mark.parametrize(
    ("background", "outlives_notice", "in_flight", "saving"),
    [
        (False, False, 600, 0),  # the stop comes as the save begins, and waits for that save
        (True, False, 0, 0),  # the stop does not wait for the copy
        (False, True, 600, 600),
        (True, True, 600, 600),
    ],
)
def test_a_stop_is_forecast_to_take_the_save_that_has_just_begun_and_another(
    saver, background, outlives_notice, in_flight, saving
):
    made = saver(background=background, seconds=600.0, outlives_notice=outlives_notice)
    made.tier.gate.set()
    made.saver.note_step(1)
    made.save(2)
    made.saver.wait_for_save(2)
    [(_, forecast)] = made.told
    assert (forecast.in_flight, forecast.saving) == (in_flight, saving)


@pytest.mark.parametrize("background", [False, True])
def test_no_one_error_of_the_filesystem_costs_the_save_against_a_notice(
    tmp_path, json_codec, part, background
):
    """Fail each operation on the filesystem, one in each save.

    The sync of the step log before the save counts as well. No later save could replace this one.
    """
    for number in itertools.count(1):
        checkpoints = Checkpointer(
            tmp_path / str(number), Solo(), codec=json_codec, background=background
        )
        log = tmp_path / f"{number}.log"
        tries, pauses = itertools.count(), []
        saver = Saver(
            checkpoints,
            every=1,
            background=background,
            bounds=(30.0, 3600.0),
            clock=lambda: 0.0,
            log_line=lambda _: None,
            sync=lambda log=log: rank0_only(Solo(), lambda: write_atomic(log, b"")),
            on_saved=lambda *_: None,
            sleep=pauses.append,
        )
        saver.save({"model": part()}, 1, {}, last=False)
        with disk.strike(number, disk.fail, disk.CALLS) as met:
            problem = saver.save_with_retries(lambda: next(tries) < 1, {"model": part()}, 2, {})  # noqa: B023
        assert (problem, saver.resume_step(), checkpoints.last_step()) == ("", 2, 2)
        assert pauses in ([], [1.0])
        if len(met) < number:
            break
    assert number > 20


def test_a_save_against_a_notice_that_can_not_be_made_is_tried_while_there_is_time(saver, part):
    made, pauses = saver(background=False), []
    made.saver._sleep = pauses.append
    made.checkpoints.save = lambda *_, **__: disk_is_full()
    problem = made.saver.save_with_retries(lambda: sum(pauses) < 30, {"model": part()}, 2, {})
    assert (problem, pauses) == ("no space", [1.0, 2.0, 4.0, 8.0, 8.0, 8.0])


def disk_is_full():
    raise CheckpointFailed("no space")


def test_what_training_waits_for_the_save_before_it_is_a_stall_as_well(saver):
    made = saver(background=True, seconds=600.0)
    made.save(1)
    settle = made.checkpoints.wait_for_save

    def once_it_is_waited_for(**how):
        made.tier.gate.set()
        return settle(**how)

    made.checkpoints.wait_for_save = once_it_is_waited_for
    made.save(2)
    made.saver.wait_for_save(2)
    assert made.told[0][0].stall_seconds == pytest.approx(600)


def test_training_waits_for_no_save_in_the_background_until_its_end(saver):
    made = saver(background=True, every="auto")
    others = set(threading.enumerate())
    made.save(1)
    made.clock.now = 500.0
    assert not made.saver.is_overdue(), "the copy is still under way"
    made.tier.gate.set()
    for thread in set(threading.enumerate()) - others:
        if thread.name == "checkpoint" and thread.is_alive():
            thread.join(10)
    made.clock.now = 999.0
    assert not made.saver.is_overdue(), "it took half of the time since it began"
    made.clock.now = 1000.0
    assert made.saver.is_overdue()


def test_a_save_is_not_due_before_the_copies_of_the_last_one_would_be_done(saver):
    made = saver(background=True, seconds=600.0, every="auto")
    made.tier.gate.set()
    made.save(1)
    made.saver.wait_for_save(1)
    made.clock.now = 1199.0
    assert not made.saver.is_overdue()
