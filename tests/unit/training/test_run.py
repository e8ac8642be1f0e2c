"""A run continues at exactly the next step.

The law holds for every end of an attempt.
"""

import itertools
import json
import threading
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import pytest

from tests.fakes import checkpoint_disk as disk
from tests.fakes.own_job import FakeScontrol
from tests.fakes.training import JsonCodec, MemoryTracker
from toolkit.training import SampleOrder
from toolkit.training.attempt.fencing import Fence
from toolkit.training.attempt.sigterm import Terminated
from toolkit.training.attempt.verdict import read
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.save_schedule import Saver
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointFailed, CheckpointUnreadable
from toolkit.training.recording import goodput
from toolkit.training.recording.audit import audit
from toolkit.training.requeue import previous_attempts
from toolkit.training.requeue.end_of_attempt import EndOfAttempt, record_without_workers
from toolkit.training.requeue.failure_cause import Evidence
from toolkit.training.requeue.failure_rules import classify
from toolkit.training.run import Run, Stopped
from toolkit.training.run_folder import stop_forecast
from toolkit.training.run_folder.attempts import AttemptsFile, Cause
from toolkit.training.run_folder.steps import StepLog
from toolkit.training.slurm.job import JobFacts, SlurmJob

ORDER = SampleOrder(size=30, global_batch=8, seed=1)  # four steps an epoch
EPOCHS = 3
WHOLE = sum(  # the sum of a run without a stop
    int(i) * (b.step + 1)
    for b in ORDER.batches(step=0, position=0, epochs=EPOCHS, rank=0, world_size=1)
    for i in b.ids
)


@dataclass
class Training:
    """A training that runs the loop.

    `events` maps a step to its events.
    """

    attempt_of: object
    codec: object
    part: object
    tracker: object = None

    def run(
        self,
        restart_count=0,
        events=None,
        world=None,
        *,
        order=ORDER,
        end_steps=True,
        warm_up=lambda _run, _attempt: None,
        evaluate=lambda _run, _attempt: None,
        leave=lambda run, total: run.finish(total=total),
        **options,
    ):
        attempt = self.attempt_of(restart_count)
        model = self.part({"sum": 0})
        ticks = map(float, count())
        run = Run(
            params={"rate": 0.1},
            seed=1,
            attempt=attempt,
            world=world or Solo(),
            codec=self.codec,
            tracker=self.tracker,
            **{
                "checkpoint_every": 5,
                "clock": ticks.__next__,
                "timer": ticks.__next__,
                **options,
            },
        )
        with run:
            warm_up(run, attempt)
            run.resume(model=model)
            for batch in run.batches(order, EPOCHS):
                for event in (events or {}).get(batch.step, ()):
                    event(attempt)
                model.value["sum"] += sum(int(i) * (batch.step + 1) for i in batch.ids)
                if end_steps:
                    run.step(batch, loss=1.0)
            evaluate(run, attempt)
            leave(run, model.value["sum"])
        return model.value["sum"]


@pytest.fixture
def training(attempt_of, json_codec, part, memory_tracker):
    return Training(attempt_of, json_codec, part, memory_tracker)


def ask_to_stop(attempt, *, deadline=99):
    attempt.stop_dir.mkdir(exist_ok=True)
    text = json.dumps({"cause": "spot-interruption", "deadline": deadline, "node": "gpu-001"})
    (attempt.stop_dir / f"{attempt.key}.json").write_text(text)


def machine_dies(_):
    raise KeyboardInterrupt  # not an Exception; the verdict is deleted below


def script_fails(_):
    raise ValueError("bad shape")


def test_an_undisturbed_run_finishes_with_its_records(training, attempt_of):
    total = training.run()
    attempt = attempt_of()
    assert read(attempt.verdict_file).exit_code == 0
    result = json.loads((attempt.run_dir / "result.json").read_text())
    assert result == {"steps": 12, "world_size": 1, "attempts": 1, "total": total}
    assert audit(attempt.run_dir).ok
    assert training.tracker.statuses == ["FINISHED"]
    assert training.tracker.tags["toolkit.attempts"] == "1"


def test_no_metric_that_is_not_nought_is_printed_as_nought(
    attempt_of, json_codec, part, memory_tracker, capsys
):
    options = {"codec": json_codec, "tracker": memory_tracker, "world": Solo()}
    with Run(params={}, seed=1, attempt=attempt_of(), **options) as run:
        run.resume(model=part())
        for batch in run.batches(SampleOrder(size=1, global_batch=1, seed=1), 1):
            run.step(batch, loss=2.30451, lr=3e-5, tokens=65536)
    assert "step 0 epoch 0 loss 2.3045 lr 3e-05 tokens 65536\n" in capsys.readouterr().out


def stop_at(training, boundary, *, saved):
    """Run the script with a stop at its `boundary`th boundary.

    Return False and the run's sum if it has fewer boundaries. Otherwise return True and the next
    attempt's sum. With `saved` there is a checkpoint before.
    """
    met = count()

    def meet(attempt):
        if next(met) == boundary:
            ask_to_stop(attempt)

    def loop(run, attempt):
        for _ in run.checked(range(2)):
            meet(attempt)

    def run(restart, events=None, **loops):
        training.tracker = MemoryTracker()
        return training.run(restart, events, **loops)

    if saved:
        with pytest.raises(Stopped):
            run(0, {6: [ask_to_stop]})
    try:
        every = {step: [meet] for step in range(12)}
        return False, run(1, every, warm_up=loop, evaluate=loop)
    except Stopped:
        return True, run(2)


@pytest.mark.parametrize("saved", [False, True])
def test_after_a_stop_at_any_boundary_of_the_script_the_next_attempt_loses_nothing(
    training, attempt_of, capsys, saved
):
    """Stop also at boundaries before `resume`, where nothing can be saved yet."""
    stopped, boundary = True, 0
    while stopped:
        place = attempt_of().run_dir / str(boundary)
        training.attempt_of = lambda number, at=place: replace(
            attempt_of(number), run_dir=at, stop_dir=at
        )
        stopped, total = stop_at(training, boundary, saved=saved)
        found = audit(place)
        assert (total, found.ok, found.repeated) == (WHOLE, True, ())
        for one, then in itertools.pairwise(found.attempts):
            assert one["step_end"] == then["step_start"] or then["step_start"] is None
        boundary += stopped
    assert boundary == 2 + (4 if saved else 12) + 2
    assert "not used" not in capsys.readouterr().out


def test_a_stop_request_during_an_evaluation_ends_the_attempt_and_only_that_is_done_again(
    training, attempt_of
):
    evaluated = []

    def evaluate(run, attempt):
        for batch in range(3):
            evaluated.append(batch)
            if len(evaluated) == 2:
                ask_to_stop(attempt)
            run.check()

    with pytest.raises(Stopped):
        training.run(evaluate=evaluate)
    word = read(attempt_of().verdict_file)
    assert (word.exit_code, word.cause, word.step) == (85, "spot-interruption", 12)
    training.tracker.closed = False
    training.run(restart_count=1, evaluate=evaluate)
    assert evaluated == [0, 1, 0, 1, 2]
    found = audit(attempt_of().run_dir)
    assert (found.ok, found.steps, found.repeated) == (True, 12, ())


def test_a_stop_request_ends_the_attempt_at_a_boundary_and_the_next_goes_on(
    training, attempt_of, memory_tracker
):
    with pytest.raises(Stopped) as stopped:
        training.run(events={6: [ask_to_stop]})
    assert stopped.value.code == 0
    word = read(attempt_of().verdict_file)
    assert (word.exit_code, word.cause) == (85, "spot-interruption")
    assert word.step in (7, 8)  # the ranks agree on a request one step after one of them saw it
    assert memory_tracker.statuses == []  # the MLflow run is still RUNNING
    memory_tracker.closed = False
    assert training.run(restart_count=1) == WHOLE
    found = audit(attempt_of().run_dir)
    assert (found.ok, found.steps, found.repeated, found.resumed_at) == (True, 12, (), (word.step,))
    causes = [
        attempt.cause
        for attempt in AttemptsFile(attempt_of().run_dir / "attempts.jsonl").attempts()
    ]
    assert causes == ["spot-interruption", "finished"]


def test_a_stop_request_for_another_attempt_stops_nobody(training, attempt_of):
    ask_to_stop(attempt_of(restart_count=4))
    training.run()
    assert read(attempt_of().verdict_file).verdict == "done"


def test_a_script_that_fails_says_so_and_is_not_brought_back(training, attempt_of):
    with pytest.raises(ValueError, match="bad shape"):
        training.run(events={6: [script_fails]})
    word = read(attempt_of().verdict_file)
    assert (word.verdict, word.exit_code, word.detail) == ("failed", 1, "ValueError: bad shape")
    assert training.tracker.statuses == ["FAILED"]


def test_where_the_batch_script_judges_a_failure_the_run_is_not_over_before_it_has(
    training, attempt_of
):
    """Leave the MLflow run open, because the job may be requeued."""
    training.attempt_of = partial(attempt_of, judged=True)
    with pytest.raises(ValueError, match="bad shape"):
        training.run(events={6: [script_fails]})
    assert read(attempt_of().verdict_file).verdict == "failed"
    assert training.tracker.statuses == []


def is_sent_sigterm(_):
    raise Terminated(143)


def test_a_run_whose_job_was_cancelled_is_killed_and_one_that_comes_back_is_not(
    training, memory_tracker, monkeypatch
):
    for restart, (answer, statuses) in enumerate(((False, []), (True, ["KILLED"]))):
        monkeypatch.setattr("toolkit.training.slurm.job.is_cancelled", lambda _, a=answer: a)
        memory_tracker.closed = False
        with pytest.raises(Terminated):
            training.run(restart, events={6: [is_sent_sigterm]})
        assert memory_tracker.statuses == statuses


def test_after_a_death_without_a_word_the_steps_since_the_checkpoint_are_repeated(
    training, attempt_of, memory_tracker
):
    undisturbed = Training(training.attempt_of, training.codec, training.part, memory_tracker)
    with pytest.raises(KeyboardInterrupt):
        training.run(events={8: [machine_dies]})
    path = attempt_of().run_dir / "attempts.jsonl"
    line = json.loads(path.read_text())  # a killed attempt leaves its line open
    path.write_text(
        json.dumps(line | {"cause": "running", "ended_at": None, "seconds": None}) + "\n"
    )
    memory_tracker.closed = False
    undisturbed.run(restart_count=1)
    found = audit(attempt_of().run_dir)
    assert (found.ok, found.steps, found.resumed_at) == (True, 12, (5,))
    assert found.repeated == (5, 6)  # step 7 was done, but its sum was never read
    assert [attempt["cause"] for attempt in found.attempts] == ["lost", "finished"]


def die_three_times(training, memory_tracker):
    """Kill the attempt three times at one step, without a checkpoint."""
    for restart in range(3):
        with pytest.raises(KeyboardInterrupt):
            training.run(restart_count=restart, events={2: [machine_dies]})
        memory_tracker.closed = False


def test_three_attempts_that_begin_at_the_same_step_are_the_last(
    training, attempt_of, memory_tracker
):
    die_three_times(training, memory_tracker)
    with pytest.raises(Stopped):
        training.run(restart_count=3)
    word = read(attempt_of(3).verdict_file)
    assert (word.exit_code, word.cause) == (93, "no-progress")


def test_a_job_that_was_held_before_its_workers_began_trains_when_it_is_released(
    training, attempt_of, memory_tracker
):
    die_three_times(training, memory_tracker)
    books = AttemptsFile(attempt_of().run_dir / "attempts.jsonl")
    books.append(
        replace(record_without_workers(attempt_of(3), 3, JobFacts(), 0.0), cause="held", held=True)
    )
    training.run(restart_count=4)
    assert read(attempt_of(4).verdict_file).verdict == "done"


@pytest.mark.parametrize("first", [None, script_fails], ids=["finished", "failed"])
def test_a_second_run_of_an_attempt_is_refused_on_every_rank_and_is_no_success(
    attempt_of, json_codec, part, ranks, first
):
    """Refuse a second run, as in a loop over folds.

    It would load the last fold's checkpoint and train nothing.
    """

    def folds(world):
        events = {6: [first]} if first else {}
        with suppress(ValueError):
            Training(attempt_of, json_codec, part, MemoryTracker()).run(0, events, world=world)
        mine = part({"sum": 0})
        with (
            pytest.raises(RuntimeError, match=r"already; a second one .*an array's tasks"),
            Run(params={}, seed=1, attempt=attempt_of(), world=world, codec=json_codec) as run,
        ):
            run.resume(model=mine)
        return mine.value["sum"]

    assert ranks(2, folds) == [0, 0]
    assert read(attempt_of().verdict_file).verdict == "failed"
    assert len(AttemptsFile(attempt_of().run_dir / "attempts.jsonl").attempts()) == 1
    slurm = SlurmJob("12", FakeScontrol())
    assert EndOfAttempt(attempt_of(), slurm, {}, clock=lambda: 1000.0).judge(1).code == 1


@pytest.mark.parametrize(
    "other", [SampleOrder(31, 8, 1), SampleOrder(30, 8, 2), SampleOrder(30, 6, 1)]
)
def test_a_run_taken_up_with_other_data_or_another_global_batch_is_refused(
    training, attempt_of, memory_tracker, other
):
    with pytest.raises(Stopped):
        training.run(events={6: [ask_to_stop]})
    memory_tracker.closed = False
    with pytest.raises(ValueError, match="began with"):
        training.run(restart_count=1, order=other)


def test_a_run_that_has_saved_nothing_may_begin_again_with_another_global_batch(
    training, attempt_of, memory_tracker
):
    with pytest.raises(KeyboardInterrupt):
        training.run(events={2: [machine_dies]})
    memory_tracker.closed = False
    training.run(restart_count=1, order=SampleOrder(30, 6, 1))
    assert read(attempt_of(1).verdict_file).verdict == "done"


def test_the_workers_take_up_the_attempt_that_their_batch_script_began(training, attempt_of):
    attempt_of().run_dir.mkdir()
    books = AttemptsFile(attempt_of().run_dir / "attempts.jsonl")
    for restart in range(2):  # the first attempt died before its workers began
        books.append(record_without_workers(attempt_of(restart), restart, JobFacts(), 0.0))
        if restart == 0:
            books.close_lost(last_seen=0.0, step_end=0)
    training.run(restart_count=1)
    found = [(one.cause, one.world_size, one.key) for one in books.attempts()]
    assert found == [("lost", 0, "12.0"), ("finished", 1, "12.1")]
    told = [dict(record.params) for record in training.tracker.records if record.params]
    assert told == [{"rate": "0.1"}], "the first attempt that has workers tells them"


def test_a_loop_that_forgets_to_end_its_steps_is_told(training):
    with pytest.raises(RuntimeError, match=r"run\.step"):
        training.run(end_steps=False)


@pytest.mark.parametrize("call", ["none", "empty"])
def test_a_script_that_names_nothing_to_save_is_refused_on_every_rank_before_its_first_step(
    attempt_of, json_codec, ranks, call
):
    def train(world):
        tracker = MemoryTracker()
        with Run(
            params={}, seed=1, attempt=attempt_of(), world=world, codec=json_codec, tracker=tracker
        ) as run:
            if call == "empty":
                run.resume()
            next(run.batches(ORDER, 1))

    assert [type(error) for error in ranks(2, train)] == [
        {"none": RuntimeError, "empty": ValueError}[call]
    ] * 2
    assert not (attempt_of().run_dir / "checkpoints").exists()


class Full(JsonCodec):
    """A codec on a disk that is full during these saves.

    Saves are counted from 1.
    """

    def __init__(self, *saves) -> None:
        self._saves, self._made = saves, 0

    def write(self, folder, staged, world):
        self._made += 1
        if self._made in self._saves:
            raise OSError(28, "No space left on device")
        return super().write(folder, staged, world)


@pytest.mark.parametrize("background", [False, True])
def test_a_save_that_fails_costs_a_warning_and_not_the_run(
    training, attempt_of, capsys, background
):
    training.codec = Full(1, 2)  # the saves of step 5 and step 10, the last but one
    training.run(background=background)
    assert read(attempt_of().verdict_file).verdict == "done"
    said = capsys.readouterr().out
    assert said.count("NOT SAVED at step") == 2
    assert "NOT SAVED at step 5: OSError: [Errno 28]" in said


@pytest.mark.parametrize(
    ("call", "lost"),
    [("attempt.fencing.os.utime", "NOT SAVED"), ("run_folder.steps.os.fsync", "NOT SAVED"),
     ("recording.recorder.pauses.append", "is not recorded")],
)  # fmt: skip
def test_an_error_of_the_shared_folder_around_a_save_costs_no_more_than_that_save(
    training, attempt_of, tmp_path, monkeypatch, capsys, *, call, lost
):
    def fails(_):
        monkeypatch.setattr(f"toolkit.training.{call}", disk.fail)

    def works(_):
        monkeypatch.undo()

    place = tmp_path / "run" / "checkpoints" / "owner" / "12.0.first.ab"
    place.mkdir(parents=True)
    training.attempt_of = lambda number: replace(attempt_of(number), fence=Fence(place))
    training.run(events={4: [fails], 5: [works]})
    assert read(attempt_of().verdict_file).verdict == "done"
    assert capsys.readouterr().out.count(lost) == 1


@pytest.fixture
def room():
    yield lambda _: disk.limit(-1)
    disk.limit(-1)


def test_a_full_disk_costs_no_run_and_no_step_of_its_record(training, attempt_of, room, capsys):
    def fills_up(attempt):
        disk.limit((attempt.run_dir / "steps.jsonl").stat().st_size + 100)  # half a line fits

    training.run(events={3: [fills_up], 8: [room]})
    assert read(attempt_of().verdict_file).verdict == "done"
    found = audit(attempt_of().run_dir)
    assert (found.ok, found.steps, found.torn_lines) == (True, 12, 1), found.problems
    said = capsys.readouterr().out
    assert said.count("steps.jsonl can't be written; training goes on") == 1
    assert said.count("NOT SAVED at step 5: OSError") == 1


@pytest.mark.parametrize(
    ("deadline", "times", "steps"),
    [(1000.0, 1, (7, 8)), (None, 1, (7, 8)), (50.0, 99, (5,)), (10.0, 1, (5,))],
    ids=["soft", "of no deadline", "for good", "too late"],
)
def test_a_stop_tries_its_save_again_while_there_is_time(
    training, attempt_of, monkeypatch, *, deadline, times, steps
):
    monkeypatch.setitem(Saver.__init__.__kwdefaults__, "sleep", lambda _: None)
    left, sync = [times], StepLog.sync

    def fails(log):
        left[0] -= 1
        return disk.fail() if left[0] >= 0 else sync(log)

    def asked(attempt):
        ask_to_stop(attempt, deadline=deadline)
        monkeypatch.setattr(StepLog, "sync", fails)

    with pytest.raises(Stopped):
        training.run(events={6: [asked]}, clock=lambda: 0.0)
    word = read(attempt_of().verdict_file)
    assert word.step in steps
    assert bool(word.detail) is (steps == (5,))


@pytest.mark.parametrize(
    ("call", "cause"), [((Fence, "is_superseded"), "running"), ((StepLog, "sync"), "error")]
)
def test_an_attempt_that_can_not_tell_whose_the_run_is_leaves_its_verdict_and_no_more(
    training, attempt_of, monkeypatch, call, cause
):
    """Write the verdict and no other record.

    A failed sync of the step log alone is no sign of a later attempt.
    """

    def folder_goes(_):
        monkeypatch.setattr(*call, disk.fail)

    with pytest.raises(ValueError, match="bad shape"):
        training.run(events={6: [folder_goes, script_fails]})
    assert read(attempt_of().verdict_file).verdict == "failed"
    (line,) = AttemptsFile(attempt_of().run_dir / "attempts.jsonl").attempts()
    assert line.cause == cause


@pytest.mark.parametrize(
    ("ends", "how"), [("done", []), ("resume", [ask_to_stop]), ("failed", [script_fails])]
)
@pytest.mark.parametrize(
    "call",
    [
        "toolkit.training.run_folder.attempts.AttemptsFile.replace_last",
        "toolkit.training.recording.recorder.goodput.split_of_run",
        "tests.fakes.training.MemoryTracker.close",
    ],
)
def test_no_record_of_its_end_that_can_not_be_written_costs_an_attempt_its_verdict(
    training, attempt_of, monkeypatch, *, call, ends, how
):
    def books_go(_):
        monkeypatch.setattr(call, disk.fail)

    with suppress(ValueError, Stopped):
        training.run(events={10: [books_go, *how]})
    assert read(attempt_of().verdict_file).verdict == ends


def test_a_checkpoint_that_can_never_be_read_ends_with_a_held_job_and_is_left_as_it_is(
    training, attempt_of, memory_tracker, monkeypatch
):
    with pytest.raises(Stopped):
        training.run(events={6: [ask_to_stop]})
    saved = read(attempt_of().verdict_file).step
    scontrol, restart, code = FakeScontrol(), 0, 85
    monkeypatch.setattr("toolkit.training.checkpoint.hashed_file.os.preadv", disk.fail)
    while code == 85:
        restart += 1
        memory_tracker.closed = False
        with pytest.raises(CheckpointUnreadable):
            training.run(restart_count=restart)
        ending = EndOfAttempt(
            attempt_of(restart), SlurmJob("12", scontrol), {}, clock=lambda: 1000.0
        )
        code = ending.judge(1).code
    assert (code, scontrol.done[-1], restart <= 6) == (93, "requeuehold 12", True)
    assert "transient (filesystem: " in scontrol.job["comment"]
    assert f"step-{saved:08d}" in scontrol.job["comment"]
    monkeypatch.undo()
    memory_tracker.closed = False
    training.run(restart_count=restart + 1)
    assert audit(attempt_of().run_dir).resumed_at == (saved,)


def leave_by_sys_exit(_run, _total):
    raise SystemExit(0)


LEAVING = [
    lambda run, _: run.finish(),
    lambda _run, _: None,
    leave_by_sys_exit,
]


@pytest.mark.parametrize("leave", LEAVING, ids=["finish", "block's end", "sys.exit"])
def test_a_run_is_done_only_when_a_checkpoint_of_its_last_step_is_committed(
    training, attempt_of, memory_tracker, leave
):
    training.codec = Full(3)
    with pytest.raises(CheckpointFailed, match="the last save of the run failed: OSError"):
        training.run(leave=leave)
    word = read(attempt_of().verdict_file)
    assert (word.verdict, word.step, memory_tracker.statuses) == ("failed", 10, ["FAILED"])
    assert not (attempt_of().run_dir / "result.json").exists()
    assert classify(Evidence(log=word.detail)).cause == "transient", "it is worth another attempt"
    memory_tracker.closed = False
    with nullcontext() if leave is not leave_by_sys_exit else pytest.raises(SystemExit):
        training.run(restart_count=1, leave=leave)
    assert read(attempt_of(1).verdict_file).verdict == "done"
    newest = Checkpointer(attempt_of().run_dir / "checkpoints", Solo()).committed()[0]
    assert newest.name.startswith("step-00000012.")
    assert audit(attempt_of().run_dir).ok


def test_a_run_that_is_told_nothing_saves_by_time_and_not_by_steps(
    attempt_of, json_codec, part, memory_tracker
):
    now = [0.0]
    with Run(
        params={},
        seed=1,
        attempt=attempt_of(),
        world=Solo(),
        codec=json_codec,
        tracker=memory_tracker,
        timer=lambda: now[0],
    ) as run:
        run.resume(model=part())
        for batch in run.batches(SampleOrder(size=200, global_batch=1, seed=1), 1):
            now[0] += 0.25
            run.step(batch)
    saved = Checkpointer(attempt_of().run_dir / "checkpoints", Solo()).committed()
    # 30 s had passed in step 120; the ranks agreed on the save in the next step.
    assert [int(folder.name[5:13]) for folder in saved] == [200, 121]


@pytest.mark.parametrize("by", [0.0, -3600.0, 3600.0])
def test_a_clock_that_is_set_moves_neither_the_next_save_nor_the_next_look_for_a_stop(
    training, attempt_of, by
):
    wall = [1_000_000.0]

    def is_set(_):
        wall[0] += by

    with pytest.raises(Stopped):
        training.run(
            events={2: [is_set], 9: [ask_to_stop]},
            clock=lambda: wall[0],
            checkpoint_every="auto",
            checkpoint_bounds=(4.0, 4.0),
        )
    saved = Checkpointer(attempt_of().run_dir / "checkpoints", Solo()).committed()
    assert [int(folder.name[5:13]) for folder in saved] == [11, 7, 3]


def test_no_step_waits_for_a_save_in_the_background(training, attempt_of, capsys):
    class Slow(JsonCodec):
        may = threading.Event()

        def write(self, folder, staged, world):
            assert self.may.wait(1)
            return super().write(folder, staged, world)

    training.codec = Slow()
    training.run(
        checkpoint_every="auto",
        checkpoint_bounds=(1.0, 2.0),
        background=True,
        evaluate=lambda _run, _attempt: Slow.may.set(),
    )
    assert read(attempt_of().verdict_file).verdict == "done"
    assert "NOT SAVED" not in capsys.readouterr().out
    saved = Checkpointer(attempt_of().run_dir / "checkpoints", Solo()).committed()
    assert [folder.name[:13] for folder in saved] == ["step-00000012", "step-00000002"]


def test_all_ranks_stop_at_the_same_step_though_one_alone_saw_the_request(
    training, attempt_of, ranks
):
    def one(world):
        training_of_rank = Training(attempt_of, training.codec, training.part, training.tracker)
        training_of_rank.run(events={6: [ask_to_stop]} if world.rank == 0 else {}, world=world)

    words = [result.verdict for result in ranks(2, one)]
    assert words[0].step == words[1].step
    assert words[0].cause == words[1].cause == "spot-interruption"
    newest = Checkpointer(attempt_of().run_dir / "checkpoints", Solo()).committed()[0]
    assert newest.name.startswith(f"step-{words[0].step:08d}.")


def evaluating(training, ranks, attempt_of, loop, at_step=2):
    """Run two ranks that evaluate after a step.

    Their training exchanges gradients in a process group of its own.
    """

    def one(world):
        gradients, ticks = world.fork(), count()
        run = Run(
            params={}, seed=1, attempt=attempt_of(), world=world, codec=training.codec,
            tracker=training.tracker, checkpoint_every=99, timer=lambda: float(next(ticks)),
        )  # fmt: skip
        with run:
            run.resume(model=training.part())
            for batch in run.batches(ORDER, 1):
                gradients.gather(batch.step)
                run.step(batch)
                if batch.step == at_step:
                    loop(run, world.rank)
        return run.step_count

    return ranks(2, one)


@pytest.mark.parametrize("counts", [(3, 3), (5, 2), (0, 3)])
def test_ranks_with_unequally_many_batches_to_evaluate_train_on_together(
    training, attempt_of, ranks, counts
):
    def loop(run, rank):
        assert list(run.checked(range(counts[rank]))) == list(range(counts[rank]))

    assert evaluating(training, ranks, attempt_of, loop) == [4, 4]


@pytest.mark.parametrize("at_step", [2, 3], ids=["in the loop", "after its last step"])
def test_ranks_that_check_unequally_often_wait_for_each_other_before_they_go_on(
    training, attempt_of, ranks, at_step
):
    def loop(run, rank):
        for _ in range((5, 2)[rank]):
            run.check()

    assert evaluating(training, ranks, attempt_of, loop, at_step) == [4, 4]


def test_a_stop_seen_by_the_one_rank_that_still_evaluates_is_everyones(training, attempt_of, ranks):
    def loop(run, rank):
        for item in run.checked(range(9 * rank)):
            if item == 5:
                ask_to_stop(attempt_of())
            assert item < 8

    words = [result.verdict for result in evaluating(training, ranks, attempt_of, loop)]
    assert [(word.step, word.exit_code) for word in words] == [(3, 85), (3, 85)]


def test_ranks_that_make_different_calls_are_told_so_at_once_and_have_failed(
    training, attempt_of, ranks
):
    def loop(run, rank):
        if rank == 0:
            run.check()
        run.finish()

    first, second = evaluating(training, ranks, attempt_of, loop)
    assert str(first) == str(second)
    assert "1 in run.check, 1 in run.finish" in str(first)
    word = read(attempt_of().verdict_file)
    assert (word.verdict, word.exit_code) == ("failed", 1)
    said = Evidence(
        verdict=previous_attempts.verdict_text(word),
        log=f"ValueError: {first}\nConnection reset by peer",
    )
    assert classify(said).cause is Cause.ERROR


def test_a_run_goes_on_with_more_and_with_fewer_ranks_and_every_sample_once(
    training, attempt_of, ranks, memory_tracker
):
    def on(size, restart, events):
        def one(world):
            mine = Training(attempt_of, training.codec, training.part, memory_tracker)
            return mine.run(restart_count=restart, events=events(world), world=world)

        memory_tracker.closed = False
        return ranks(size, one)

    on(2, 0, lambda world: {2: [ask_to_stop]} if world.rank == 0 else {})
    on(3, 1, lambda world: {6: [ask_to_stop]} if world.rank == 0 else {})
    on(1, 2, lambda _: {})
    found = audit(attempt_of().run_dir)
    assert (found.ok, found.steps, found.samples, found.epochs_complete) == (True, 12, 90, 3)
    assert len(found.resumed_at) == 2


def test_the_split_of_time_is_recorded_once_an_attempt_has_the_time_for_it(
    training, attempt_of, memory_tracker
):
    def splits():
        named = [dict(record.metrics) for record in memory_tracker.records]
        return [metrics for metrics in named if "toolkit.goodput" in metrics]

    with pytest.raises(Stopped):
        training.run(events={6: [ask_to_stop]})
    assert splits() == []  # the last seconds of an instance are for the checkpoint
    memory_tracker.closed = False
    training.run(restart_count=1)
    assert len(splits()) == 2  # of the first attempt at the second's beginning, and of both
    kept = json.loads((attempt_of().run_dir / "goodput.json").read_text())
    assert kept["attempts"] == 2
    assert kept["seconds"]["restore"] > 0


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("end", [None, machine_dies, ask_to_stop])
def test_all_that_training_stands_still_for_a_save_is_save_and_no_step_is(
    training, attempt_of, background, end
):
    """Count the time of a single or an unfinished save as well."""
    now, stood = [1000.0], [0.0]

    class Slow(JsonCodec):
        def stage(self, parts, world, *, copy):
            now[0] += 20
            stood[0] += 20
            return super().stage(parts, world, copy=copy)

    def takes_a_second(_):
        now[0] += 1

    training.codec = Slow()
    events = {step: [takes_a_second] for step in range(12)}
    events[7] = [*events[7], end] if end else events[7]
    with pytest.raises((Stopped, KeyboardInterrupt)) if end else nullcontext():
        training.run(
            events=events, background=background, clock=lambda: now[0], timer=lambda: now[0]
        )
    found = goodput.split_of_run(attempt_of().run_dir, now[0]).seconds
    trained = 12 if end is None else found["useful"]
    assert (found["save"], found["useful"]) == (stood[0], trained)
    assert trained <= 12


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("every", [1, 2, 5])
def test_what_a_stop_takes_is_reckoned_with_steps_as_they_are_after_the_first(
    training, attempt_of, capsys, every, background
):
    """Forecast a stop without the first step, which compiles.

    Saves are no part of a step. A second attempt computes the same.
    """
    now = [0.0]

    class Slow(JsonCodec):
        def stage(self, *args, **how):
            now[0] += 7
            return super().stage(*args, **how)

    training.codec = Slow()
    for restart, events in enumerate(({8: [ask_to_stop]}, {})):
        training.tracker = MemoryTracker()
        lasts = itertools.chain([100], itertools.repeat(0.5))

        def passes(_, lasts=lasts):
            now[0] += next(lasts)

        with pytest.raises(Stopped) if events else nullcontext():
            training.run(
                restart,
                {step: [*events.get(step, ()), passes] for step in range(12)},
                checkpoint_every=every,
                background=background,
                clock=lambda: now[0],
                timer=lambda: now[0],
            )
        assert stop_forecast.read_measured(attempt_of().run_dir).forecast.steps == 2 * 0.5
        said = capsys.readouterr().out
        assert (said.count("a stop would take"), "WARNING" in said) == (1, False)


def test_the_first_save_tells_what_a_stop_takes_and_keeps_it_for_the_next_submission(
    training, attempt_of, capsys
):
    training.run()
    said = capsys.readouterr().out
    kept = stop_forecast.read_measured(attempt_of().run_dir)
    assert (kept.job_id, kept.world_size) == ("12", 1)
    assert kept.forecast.in_flight > 0
    assert said.count("a stop would take") == 1
    assert f"a stop would take {kept.forecast.seconds:.0f} s of a spot notice's 120" in said


def test_a_stop_that_does_not_fit_is_warned_of_with_what_to_change(training, monkeypatch, capsys):
    slow = stop_forecast.forecast(
        step_seconds=1, in_flight_seconds=300, save_seconds=300, saved_bytes=2**36
    )
    monkeypatch.setattr(stop_forecast, "forecast", lambda **_: slow)
    training.run()
    said = capsys.readouterr().out
    assert "WARNING: a stop would take 619 s and a spot notice gives 120" in said
    assert "every rank writes its share" in said
