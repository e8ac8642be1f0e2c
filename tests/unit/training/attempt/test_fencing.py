"""A superseded attempt changes nothing in the run and gets an error."""

import errno
import json
import os
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.own_job import FakeScontrol
from toolkit.training import SampleOrder
from toolkit.training.attempt import verdict
from toolkit.training.attempt.attempt import current, fence_of
from toolkit.training.attempt.fencing import UNCLAIMED, Fence
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.tier import FolderTier
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointFailed, Superseded
from toolkit.training.requeue.end_of_attempt import EndOfAttempt, JobOutcome
from toolkit.training.requeue.start_check import StartCheck
from toolkit.training.run import Run
from toolkit.training.run_folder.attempts import AttemptRecord, AttemptsFile
from toolkit.training.slurm.job import SlurmJob

NCCL_LOST = "[rank0]: ncclRemoteError: A call failed possibly due to a network error\n"
ORDER = SampleOrder(size=30, global_batch=8, seed=1)  # four steps


@pytest.fixture
def place(tmp_path):
    found = tmp_path / "checkpoints" / "owner" / "12.0.first.ab"
    found.mkdir(parents=True)
    return found


@pytest.fixture
def saves(place, json_codec, part):
    """A function that makes checkpointers.

    They have the fence of this attempt or of the next one.
    """

    def make(owner=None, *, world=None, codec=None, background=False):
        root = place.parents[1]
        checkpoints = Checkpointer(
            root,
            world or Solo(),
            codec=codec or json_codec,
            fence=owner or Fence(place),
            background=background,
        )
        return checkpoints, lambda step: checkpoints.save({"model": part()}, step=step, facts={})

    return make


@pytest.mark.parametrize("linked", [False, True])
def test_a_checkpointer_alone_is_its_attempts_and_a_later_one_finds_what_it_saved(
    place, tmp_path, json_codec, part, monkeypatch, *, linked
):
    """Take the batch script's fence from the environment, without a Run."""
    root = place.parents[1]
    if linked:
        (tmp_path / "link").symlink_to(root.parent)
        root = tmp_path / "link" / "checkpoints"

    def of(restart, owner):
        monkeypatch.setenv("SLURM_JOB_ID", "12")
        monkeypatch.setenv("SLURM_RESTART_COUNT", restart)
        monkeypatch.setenv("TOOLKIT_RUN_OWNER", str(owner))
        monkeypatch.setenv("TOOLKIT_RUN_DIR", str(root.parent))
        return Checkpointer(root, Solo(), codec=json_codec)

    old = of("0", place)
    old.save({"model": part()}, step=10, facts={})
    place.rmdir()  # the next attempt takes over
    later = place.with_name("12.1.first.cd")
    later.mkdir()
    new = of("1", later)
    new.load({"model": part()})
    new.save({"model": part()}, step=12, facts={})
    for step in (11, 12, 13):
        with pytest.raises(Superseded):
            old.save({"model": part()}, step=step, facts={})
    assert committed(place) == ["step-00000010.000001", "step-00000012.000002"]
    assert fence_of(tmp_path.parent / "elsewhere") == UNCLAIMED


def names(place):
    return sorted(path.name for path in place.parents[1].glob("step-*"))


def committed(place):
    return [name for name in names(place) if (place.parents[1] / name / "COMMITTED").exists()]


def test_an_attempt_that_has_its_fence_saves_and_leaves_no_temporary_files(saves, place):
    checkpoints, save = saves()
    for step in (1, 2, 3):
        save(step)
    assert [folder.name[:13] for folder in checkpoints.committed()] == [
        "step-00000003", "step-00000002",
    ]  # fmt: skip
    assert list(place.iterdir()) == []


def test_an_attempt_whose_run_was_taken_over_saves_and_deletes_nothing(saves, place):
    _, save = saves()
    save(1)
    shutil.rmtree(place)
    _, other = saves(UNCLAIMED)
    other(2), other(3)
    before = names(place)
    with pytest.raises(Superseded, match="another attempt has taken over"):
        save(4)
    assert names(place) == before


def test_every_rank_learns_that_the_run_was_taken_over(saves, place, ranks):
    shutil.rmtree(place)

    def one(world):
        checkpoints, save = saves(world=world)
        with pytest.raises(Superseded):
            checkpoints.check_fence()
        save(1)

    assert [type(found) for found in ranks(3, one)] == [Superseded] * 3


class TakenOver:
    """A codec during whose write another attempt takes over the run.

    With `delete` that attempt also deletes the written folder.
    """

    def __init__(self, codec, place, *, delete) -> None:
        self._codec, self._place, self._delete = codec, place, delete

    def stage(self, parts, world, *, copy):
        return self._codec.stage(parts, world, copy=copy)

    def write(self, folder, staged, world):
        written = self._codec.write(folder, staged, world)
        shutil.rmtree(self._place)
        if self._delete:
            shutil.rmtree(folder)
        return written


@pytest.mark.parametrize("delete", [False, True])
def test_a_save_that_is_under_way_when_the_run_is_taken_over_is_not_committed(
    saves, place, json_codec, delete
):
    _, save = saves(codec=TakenOver(json_codec, place, delete=delete))
    # A deleted checkpoint folder fails the save before the fence is checked.
    with pytest.raises(CheckpointFailed if delete else Superseded):
        save(1)
    assert committed(place) == []


def test_a_background_save_under_way_when_the_run_is_taken_over_is_not_committed(
    saves, place, json_codec, part
):
    checkpoints, _ = saves(codec=TakenOver(json_codec, place, delete=False), background=True)
    checkpoints.start_save({"model": part()}, step=1, facts={})
    with pytest.raises(Superseded):
        checkpoints.wait_for_save()
    assert committed(place) == []


def test_the_commit_itself_fails_when_the_run_was_taken_over_after_the_last_look(
    saves, place, monkeypatch
):
    """Take over the run between the write of COMMITTED and its rename.

    A node that is cut off at this moment is in the same state.
    """
    rename = Path.replace

    def late(path, target):
        if Path(target).name == "COMMITTED":
            shutil.rmtree(place)
        return rename(path, target)

    _, save = saves()
    monkeypatch.setattr(Path, "replace", late)
    with pytest.raises(Superseded):
        save(1)
    assert committed(place) == []


def test_a_checkpoint_that_is_mended_from_a_tier_is_taken_from_nobody(
    saves, place, tmp_path, json_codec, part
):
    """Mend nothing, because the next attempt may mend the same checkpoint."""
    tiers = (FolderTier(tmp_path / "far"),)
    root = place.parents[1]
    Checkpointer(root, Solo(), codec=json_codec, tiers=tiers).save(
        {"model": part()}, step=1, facts={}
    )
    (damaged,) = root.glob("step-*")
    (damaged / "shared.json").write_text("damaged")
    shutil.rmtree(place)
    late = Checkpointer(root, Solo(), codec=json_codec, tiers=tiers, fence=Fence(place))
    with pytest.raises(Superseded):
        late.load({"model": part()})
    assert committed(place) == [damaged.name]


@pytest.mark.parametrize("lost", [False, True])
def test_a_file_on_another_filesystem_is_written_by_its_owner_alone(place, other_filesystem, lost):
    path = other_filesystem / "attempts.jsonl"
    if lost:
        shutil.rmtree(place)
    with pytest.raises(Superseded) if lost else nullcontext():
        Fence(place).write_fenced(path, b"{}")
    assert path.exists() is not lost


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_on_another_filesystem_is_its_owners_alone_to_delete(place, other_filesystem, lost):
    folder = other_filesystem / "step-00000001.000001"
    folder.mkdir()
    if lost:
        shutil.rmtree(place)
    with pytest.raises(Superseded) if lost else nullcontext():
        assert Fence(place).move_to_trash(folder) == folder
    assert folder.exists()


@pytest.fixture
def linked(place, other_filesystem):
    """A folder of the run that is a link to another filesystem."""
    found = place.parents[2] / "ema"
    found.symlink_to(other_filesystem)
    return found


def test_a_checkpointer_in_a_linked_folder_of_the_run_keeps_as_many_as_it_is_told(
    place, linked, json_codec, part
):
    checkpoints = Checkpointer(linked, Solo(), codec=json_codec, keep=2, fence=Fence(place))
    for step in range(1, 6):
        checkpoints.save({"model": part()}, step=step, facts={})
    left = sorted(path.name for path in linked.iterdir())
    assert left == ["step-00000004.000004", "step-00000005.000005"]


def test_a_checkpoint_in_a_linked_folder_of_the_run_is_mended_from_a_tier(
    place, linked, tmp_path, json_codec, part
):
    options = {"codec": json_codec, "tiers": (FolderTier(tmp_path / "far"),), "fence": Fence(place)}
    Checkpointer(linked, Solo(), **options).save({"model": part({"w": 1})}, step=1, facts={})
    (damaged,) = linked.glob("step-*")
    (damaged / "shared.json").write_text("damaged")
    model = part()
    Checkpointer(linked, Solo(), **options).load({"model": model})
    assert model.value == {"w": 1}


@pytest.mark.parametrize(
    ("number", "lost"),
    [
        (errno.ENOENT, True),
        (errno.ENOTDIR, True),
        (errno.ESTALE, True),  # NFS: another client deleted the folder
        (errno.EIO, None),
        (errno.ETIMEDOUT, None),
        (errno.EACCES, None),
    ],
)
def test_a_place_that_the_file_server_no_longer_knows_is_lost_and_other_errors_tell_nothing(
    place, monkeypatch, number, lost
):
    def answer(*_):
        raise OSError(number, os.strerror(number), str(place))

    monkeypatch.setattr("toolkit.training.attempt.fencing.os.utime", answer)
    owner = Fence(place)
    assert owner.may_be_superseded()
    with pytest.raises(OSError, match=os.strerror(number)) if lost is None else nullcontext():
        assert owner.is_superseded()
    with pytest.raises(Superseded if lost else OSError):
        owner.check()


def test_a_disk_that_is_full_is_no_taking_over(saves, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    _, save = saves()
    monkeypatch.setattr("toolkit.training.attempt.fencing.write_atomic", full)
    with pytest.raises(CheckpointFailed, match="No space left"):
        save(1)


def test_the_place_is_the_one_that_the_batch_script_names(place):
    said = {"SLURM_JOB_ID": "12", "TOOLKIT_RUN_OWNER": str(place)}
    assert current(said).fence == Fence(place)
    assert current({}).fence == UNCLAIMED


@pytest.mark.parametrize(
    "job", [{"SLURM_JOB_ID": "77"}, {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1"}]
)
def test_nothing_is_of_an_attempt_that_preflight_found_for_another(place, job):
    """Ignore the variables of the job that submitted this one.

    This job has a batch script of its own.
    """
    theirs = {
        "TOOLKIT_RUN_OWNER": str(place),
        "TOOLKIT_RUN_DIR": str(place.parents[2]),
        "TOOLKIT_ATTEMPT_STARTED": "1.0",
    }
    assert current(theirs | job) == current(job)
    own = {**job, "TOOLKIT_RUN_DIR": "/shared/own"}
    assert current(theirs | own) == current(own)


@pytest.fixture
def train(attempt_of, place, json_codec, part, memory_tracker):
    """A function that runs the loop as the owner.

    Another attempt takes over during step `at`.
    """

    def run(at, **options):
        attempt = replace(attempt_of(), fence=Fence(place))
        doubles = {"world": Solo(), "codec": json_codec, "tracker": memory_tracker}
        with Run(params={}, seed=1, attempt=attempt, **doubles, **options) as run:
            run.resume(model=part())
            for batch in run.batches(ORDER, 1):
                if batch.step == at:
                    shutil.rmtree(place)
                run.step(batch)
            run.finish()

    return run


@pytest.mark.parametrize("every", [1, 100])
@pytest.mark.parametrize("at", [1, 3])
def test_a_superseded_attempt_writes_a_verdict_and_no_records(
    attempt_of, train, memory_tracker, every, at
):
    with pytest.raises(Superseded):
        train(at, checkpoint_every=every)
    word = verdict.read(attempt_of().verdict_file)
    assert (word.verdict, word.cause, word.exit_code) == ("resume", "superseded", 85)
    assert not (attempt_of().run_dir / "result.json").exists()
    line = json.loads((attempt_of().run_dir / "attempts.jsonl").read_text())
    assert line["cause"] == "running"  # the next attempt closes the line
    assert memory_tracker.statuses == []


def test_an_attempt_that_was_superseded_before_it_began_writes_no_records(attempt_of, train, place):
    """Take over the run before it begins.

    The attempt may still import modules or fill a dataset.
    """
    run_dir = attempt_of().run_dir
    run_dir.mkdir()
    shutil.rmtree(place)
    with pytest.raises(Superseded):
        train(-1)
    left = {path.name for path in run_dir.iterdir()}
    assert not left & {"attempts.jsonl", "steps.jsonl", "times.jsonl"}


def test_a_superseded_attempt_with_nothing_more_to_save_writes_a_verdict_and_no_records(
    attempt_of, train, place, monkeypatch
):
    """Take over the run after the save of its last step."""
    saved = Checkpointer.save

    def then_taken_over(self, parts, *, step, **options):
        found = saved(self, parts, step=step, **options)
        if step == 4:
            shutil.rmtree(place)
        return found

    monkeypatch.setattr(Checkpointer, "save", then_taken_over)
    with pytest.raises(Superseded):
        train(-1, checkpoint_every=4)
    assert not (attempt_of().run_dir / "result.json").exists()


class TakingOver(FakeScontrol):
    """A Slurm during whose call `number` another attempt takes over."""

    def __init__(self, place, number) -> None:
        super().__init__()
        self._place, self._left = place, number
        self.by_then = None  # the commands to the job until that moment

    def __call__(self, argv) -> str:
        said = super().__call__(argv)
        self._left -= 1
        if self._left == 0:
            shutil.rmtree(self._place)
            self.by_then = [*self.done, self.job["comment"]]
        return said


def ends_transiently(attempt, job):
    """End so that the job is requeued with a wait."""
    (attempt.run_dir / "log").write_text(f"[toolkit] job 12, restart 1,\n{NCCL_LOST}")
    return EndOfAttempt(attempt, job, {"TOOLKIT_LOG": str(attempt.run_dir / "log")}).judge(1)


def ends_stuck(attempt, job):
    """End so that the job is held."""
    verdict.hold(9, "no-progress", "stuck").write(attempt.verdict_file)
    return EndOfAttempt(attempt, job, {}).judge(1)


def fails(attempt, job):
    """Fail, so that the reason is written into the job's comment."""
    return EndOfAttempt(attempt, job, {}).judge(1)


def begins_with_its_dollars_spent(attempt, job):
    """Begin with the dollars spent, so that the job is held."""
    instances = ({"price": "2.00"},)
    first = AttemptRecord.at_start(attempt, 0, 0.0, world_size=1, nodes=(), instances=instances)
    before = replace(first.with_end(at=3600.0, cause="lost", step_end=5), restart_count=0)
    AttemptsFile(attempt.run_dir / "attempts.jsonl").append(before)
    return StartCheck(attempt, job, {"TOOLKIT_MAX_USD": "1.99"}).check()


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize(
    "judged", [ends_transiently, ends_stuck, fails, begins_with_its_dollars_spent]
)
def test_an_attempt_whose_place_is_gone_does_nothing_to_the_job(attempt_of, place, judged, number):
    """Send no command after the take-over.

    Commands before the take-over are allowed.
    """
    slurm = TakingOver(place, number)
    attempt = replace(attempt_of(1), fence=Fence(place))
    attempt.run_dir.mkdir()
    outcome = judged(attempt, SlurmJob("12", slurm, fence=attempt.fence))
    assert slurm.by_then in (None, [*slurm.done, slurm.job["comment"]])
    assert number > 1 or outcome.code == 85


def test_an_attempt_that_looks_back_after_its_successor_has_begun_leaves_its_line(
    attempt_of, place
):
    """Change nothing, because the next attempt began during the preflight."""
    attempt, books = replace(attempt_of(1), fence=Fence(place)), attempt_of().run_dir
    books.mkdir()
    ledger = AttemptsFile(books / "attempts.jsonl")
    ledger.append(
        AttemptRecord.at_start(attempt_of(2), 0, 0.0, world_size=1, nodes=(), instances=())
    )
    line = ledger.attempts()
    shutil.rmtree(place)
    outcome = StartCheck(attempt, SlurmJob("12", FakeScontrol()), {}).check()
    assert (outcome.code, outcome.log_lines[0][:12]) == (85, "superseded: ")
    assert ledger.attempts() == line


def test_the_end_of_an_attempt_that_was_taken_over_decides_nothing_about_the_job(attempt_of, place):
    """Send no command to the job.

    A hold or requeue would end the next attempt, which may run as this job.
    """

    def never(argv):
        raise AssertionError(argv)

    attempt = replace(attempt_of(), fence=Fence(place))
    shutil.rmtree(place)
    outcome = EndOfAttempt(attempt, SlurmJob("12", never), {}).judge(1)
    assert outcome.code == 85
    assert outcome.log_lines[0].startswith("superseded: ")
    assert not attempt.run_dir.exists()


@pytest.mark.parametrize(("taken", "told"), [(False, ["FAILED"]), (True, [])])
def test_the_run_of_an_attempt_that_is_taken_over_after_its_end_was_judged_gets_no_end(
    attempt_of, place, monkeypatch, taken, told
):
    ends = []
    monkeypatch.setattr(
        "toolkit.training.tracking.mlflow.end_mlflow_run",
        lambda _attempt, status, _at: ends.append(status),
    )
    if taken:
        shutil.rmtree(place)
    JobOutcome(1, (), "FAILED").conclude(replace(attempt_of(), fence=Fence(place)))
    assert ends == told
