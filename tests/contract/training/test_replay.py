"""A replay, which repeats a run's submission or says why not."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.training.recording import summary
from toolkit.training.reproduce import git_commit, installed_packages, replay, submission
from toolkit.training.run_folder import datasets_used
from toolkit.training.run_folder.run_folder import RunFolder


def git(folder, *words):
    identity = ("-c", "user.name=ada", "-c", "user.email=ada@example.com")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


class Case:
    """A script's run in a dirty checkout, with a fake sbatch."""

    def __init__(self, root: Path) -> None:
        self.root, self.run_dir, self.code = root, root / "runs" / "12", root / "code"
        self.submitted = []
        for folder in (self.run_dir / "submission", self.code):
            folder.mkdir(parents=True)
        (self.code / "train.py").write_text("print(1)\n")
        (self.code / "model.py").write_text("WIDTH = 1\n")
        git(self.code, "init", "-q")
        git(self.code, "add", ".")
        git(self.code, "commit", "-qm", "Begin")
        (self.code / "model.py").write_text("WIDTH = 2\n")
        (self.code / "helper.py").write_text("HELP = 1\n")  # not in git
        RunFolder(self.run_dir).create()
        parts = self.run_dir / "submission"
        (parts / "job.sbatch").write_text("#!/bin/bash\n#SBATCH --requeue\n")
        (parts / "arguments").write_bytes(b"train.py\0--name\0two words\0")
        (parts / "environment").write_bytes(
            b"SLURM_JOB_ID=12\0SLURM_JOB_PARTITION=spot\0NCCL_DEBUG=INFO\0TOOLKIT_ENV=/nowhere\0"
            b"SBATCH_EXPORT=ALL,WIDTH=2\0"
        )
        (parts / "names").write_text("PATH\nWIDTH\nNCCL_DEBUG\n")
        (parts / "directory").write_text(str(self.code))
        (parts / "submit-line").write_text(
            "sbatch --exclusive -C h100 job.sbatch train.py --name two words\n"
        )
        code = git_commit.code_of(self.code / "train.py", {})
        patch = f"code-{code.patch_sha256[:12]}.patch"
        (self.run_dir / patch).write_bytes(code.patch)
        lock = installed_packages.digest(installed_packages.text())
        submission.capture(self.run_dir, code, lock=lock, patch=patch)

    def replay(self, *flags):
        parser_flags = [str(self.run_dir), *map(str, flags)]
        return replay.main(parser_flags)

    def sbatch(self, argv, environment, folder):
        self.submitted.append((argv, environment, folder))
        return "99;demo\n"

    @property
    def job_script(self):
        return str(self.run_dir / "submission" / "job.sbatch")


@pytest.fixture
def case(tmp_path, monkeypatch):
    made = Case(tmp_path)
    monkeypatch.setattr(replay.run_replay, "__defaults__", (made.sbatch,))
    return made


def answer(capsys):
    return json.loads(capsys.readouterr().out)


def test_the_same_call_is_made_with_the_same_words_options_and_environment(case, capsys):
    assert case.replay() == 0
    assert answer(capsys)["job_id"] == "99"
    ((argv, environment, folder),) = case.submitted
    assert argv == (
        "sbatch",
        "--exclusive",
        "-C",
        "h100",
        "--parsable",
        f"--chdir={case.code}",
        "--partition=spot",
        case.job_script,
        "train.py",
        "--name",
        "two words",
    )
    assert environment["NCCL_DEBUG"] == "INFO"
    assert environment["SBATCH_EXPORT"] == "ALL,WIDTH=2"  # submission.json leaves this out
    assert environment["TOOLKIT_REPLAY_OF"] == RunFolder(case.run_dir).key
    assert not any(name.startswith("SLURM_") for name in environment)
    assert folder == str(case.code)


def test_a_replay_that_may_lack_options_is_logged_to_differ(case, capsys):
    (case.run_dir / "submission" / "submit-line").unlink()
    assert case.replay() == 1
    assert answer(capsys)["differs"] == [
        "the options on sbatch's command line are not known for certain"
    ]


def test_packages_that_are_not_what_they_were_are_said_to_differ(case, capsys):
    found = replace(submission.read(case.run_dir), lock="sha256:other")
    submission.write_json(case.run_dir / "submission.json", submission.asdict(found))
    assert case.replay() == 1
    assert "other packages" in answer(capsys)["differs"][0]


def test_a_dataset_that_is_another_one_now_is_logged_to_differ(case, capsys, monkeypatch):
    store = case.root / "store"
    monkeypatch.setenv("TOOLKIT_DATA_STORE", str(store))
    catalog = Catalog(FolderStore(store))
    then = add(catalog, case.code, name="digits").version
    datasets_used.add(case.run_dir, {"digits": then, then: then})
    assert case.replay("--dry-run") == 0
    capsys.readouterr()
    (case.root / "other").mkdir()
    (case.root / "other" / "file").write_text("x")
    now = add(catalog, case.root / "other", name="digits").version
    assert case.replay() == 1
    assert answer(capsys)["differs"] == [f"dataset digits is {now} now, not {then}"]
    assert case.submitted == []


def test_the_folder_may_be_named_from_where_one_is(case, capsys, monkeypatch):
    monkeypatch.chdir(case.root)
    assert replay.main(["runs/12", "--dry-run"]) == 0
    assert case.job_script in answer(capsys)["argv"]


def test_a_dry_run_prints_the_call_and_makes_none(case, capsys):
    assert case.replay("--dry-run") == 0
    assert answer(capsys)["argv"][-1] == "two words"
    assert case.submitted == []


def change_script(case):
    (case.code / "train.py").write_text("print(2)\n")


def commit(case):
    git(case.code, "commit", "-qam", "Go on")


def change_helper(case):
    (case.code / "helper.py").write_text("HELP = 2\n")


def lose_helper(case):
    (case.code / "helper.py").unlink()


def discard(case):
    git(case.code, "checkout", "model.py")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (change_script, "train.py has another content"),
        (commit, "is at "),
        (discard, "the uncommitted changes in"),
        (change_helper, "helper.py, which is not in git, has another content"),
        (lose_helper, "helper.py, which is not in git, no longer exists"),
    ],
)
def test_code_that_is_not_what_it_was_is_refused_unless_accepted(case, capsys, change, says):
    change(case)
    assert case.replay() == 1
    assert any(says in reason for reason in answer(capsys)["differs"])
    assert case.submitted == []
    assert case.replay("--anyway") == 0
    assert len(case.submitted) == 1


@pytest.mark.parametrize("dry", [True, False])
def test_the_code_of_then_is_made_again_in_a_folder_of_its_own(case, capsys, dry):
    commit(case)
    change_script(case)
    there = case.root / "again"
    assert case.replay("--rebuild", there, *(["--dry-run"] if dry else [])) == 0
    found = answer(capsys)
    assert f"--chdir={there}" in found["argv"]
    assert found["argv"][-3] == str(there / "train.py")
    assert there.exists() is not dry
    if not dry:
        assert (there / "model.py").read_text() == "WIDTH = 2\n"
        assert (there / "train.py").read_text() == "print(1)\n"
        assert (there / "helper.py").read_text() == "HELP = 1\n"
        assert case.submitted[0][2] == str(there)


def test_the_code_of_then_is_imported_and_not_that_of_now(case, capsys):
    environment = case.run_dir / "submission" / "environment"
    environment.write_bytes(
        environment.read_bytes() + f"PYTHONPATH=/shared/lib:{case.code}/src\0".encode()
    )
    for words, expected in (((), case.code), (("--rebuild", case.root / "a"), case.root / "a")):
        assert case.replay("--dry-run", *words) == 0
        found = answer(capsys)["environment"]["PYTHONPATH"]
        assert found == f"/shared/lib:{expected}/src"


@pytest.mark.parametrize("change", [change_helper, lose_helper])
def test_what_the_folder_would_lack_of_the_code_of_then_is_logged(case, capsys, change):
    change(case)
    there = case.root / "again"
    assert case.replay("--rebuild", there) == 1
    (reason,) = answer(capsys)["differs"]
    assert reason.startswith(f"{there} would lack the recorded file: {case.code}/helper.py")
    assert case.replay("--rebuild", there, "--anyway") == 0
    assert not (there / "helper.py").exists()


def test_what_was_not_recorded_is_logged_and_stops_nothing(case, capsys):
    assert case.replay() == 0
    assert answer(capsys)["unknown"] == ["the values of these variables were not recorded: WIDTH"]
    path = case.run_dir / "submission.json"
    later = {"untracked", "untracked_whole", "unkept"}
    record = json.loads(path.read_text())
    path.write_text(json.dumps({name: record[name] for name in record.keys() - later}))
    assert case.replay() == 0
    assert answer(capsys)["unknown"] == ["some files that git does not know were not recorded"]


def test_code_whose_diff_was_not_kept_cannot_be_made_again(case, capsys):
    found = submission.read(case.run_dir)
    submission.write_json(
        case.run_dir / "submission.json", submission.asdict(replace(found, patch=""))
    )
    assert case.replay("--rebuild", case.root / "again") == 1
    assert "too large to be kept" in answer(capsys)["missing"][0]


@pytest.mark.parametrize(
    ("remove", "says"),
    [
        ("submission/job.sbatch", "the copy of the job script can't be read"),
        ("../../code/train.py", "the training script no longer exists"),
    ],
)
def test_what_is_not_there_any_more_is_named(case, capsys, remove, says):
    (case.run_dir / remove).unlink()
    assert case.replay("--anyway") == 1
    assert any(says in reason for reason in answer(capsys)["missing"])
    assert case.submitted == []


def test_a_job_script_that_was_tampered_with_is_not_submitted(case, capsys):
    Path(case.job_script).write_text("#!/bin/bash\nrm -rf ~\n")
    assert case.replay("--anyway") == 1
    assert "has changed since it was recorded" in answer(capsys)["missing"][0]


def test_nothing_that_another_wrote_into_a_folder_is_run(case, capsys, tmp_path, monkeypatch):
    ran, program = tmp_path / "ran", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    record = case.run_dir / "submission.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "python": str(program)}))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert case.replay("--anyway") == 2
    assert "is not yours" in capsys.readouterr().err
    assert not ran.exists()


def test_a_run_without_a_record_says_so(tmp_path, capsys):
    assert replay.main([str(tmp_path)]) == 2
    assert "no submission.json" in capsys.readouterr().err


def test_sbatchs_refusal_is_passed_on(case, capsys, monkeypatch):
    def refuse(argv, environment, folder):
        raise subprocess.CalledProcessError(1, argv, stderr="Invalid account")

    monkeypatch.setattr(replay.run_replay, "__defaults__", (refuse,))
    assert case.replay() == 1
    assert "sbatch: exit code 1: Invalid account" in answer(capsys)["missing"][0]


def test_a_folder_is_summed_up_in_one_object(case, capsys):
    assert summary.main([str(case.run_dir)]) == 0
    found = answer(capsys)
    assert found["submission"]["job_id"] == "12"
    assert found["attempts"] == []
    assert summary.main([str(case.root)]) == 2
