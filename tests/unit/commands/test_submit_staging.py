"""`toolkit submit --stage-in` and `--stage-out`: one command for a job and the copies of its data.

Stand-ins of Slurm's programs record their calls. tests/slurm/test_staging.py has the real ones.
"""

import json
import os

import pytest

from tests.unit.commands.test_submit_command import GOOD
from toolkit.cli import INTERRUPTED, run
from toolkit.submit.slurm_client import SlurmClient

PROGRAM = """#!/bin/bash
name=$(basename "$0")
case "$name $*" in
  "sinfo "*) printf 'racks\\nburst\\n' ;;
  "sacctmgr "*) printf 'vision\\n' ;;
  "sbatch --test-only "*)
    [[ -z $REFUSED || "$*" != *"$REFUSED"* ]] || { echo "no such file" >&2; exit 1; } ;;
  "sbatch "*)
    echo "${TOOLKIT_RUN_ID:+with TOOLKIT_RUN_ID }$name $*" >>"$CALLS"
    [[ -z $BROKEN || "$*" != *"$BROKEN"* ]] || { echo "out of ids" >&2; exit 1; }
    grep -c sbatch "$CALLS" ;;
  *) echo "$name $*" >>"$CALLS" ;;
esac
"""
STAGE = "/shared/jobscripts/stage.sbatch"
WAIT = "--kill-on-invalid-dep=yes"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A login node, and a function that returns Slurm's calls."""
    (tmp_path / "bin").mkdir()
    for name in ("sbatch", "sinfo", "sacctmgr", "scancel"):
        program = tmp_path / "bin" / name
        program.write_text(PROGRAM)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    calls = tmp_path / "calls"
    calls.touch()
    for name, value in {"CALLS": str(calls), "REFUSED": "", "BROKEN": ""}.items():
        monkeypatch.setenv(name, value)
    for name in ("TOOLKIT_RUN_ID", "TOOLKIT_CONTAINER", "TOOLKIT_JOBSCRIPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sbatch").write_text(GOOD)
    return lambda: calls.read_text().splitlines()


def submit(*words, partition="--partition=racks,burst"):
    return run(["submit", *words, *filter(None, [partition]), "job.sbatch", "train.py"])


BOTH = ("--stage-in", "imagenet=/work/ada/imagenet", "--stage-out", "/work/ada/results")


def test_one_command_submits_the_job_between_its_copies(cluster, capsys):
    assert submit(*BOTH) == 0
    assert cluster() == [
        f"sbatch --parsable --partition=racks {STAGE} put /work/ada/imagenet imagenet",
        (
            f"sbatch --parsable --dependency=afterok:1 {WAIT} --comment=s3-data"
            " --partition=racks,burst job.sbatch train.py"
        ),
        (
            f"sbatch --parsable --dependency=afterok:2 {WAIT} --partition=burst {STAGE}"
            " put-run 2 --missing-ok"
        ),
        (
            f"sbatch --parsable --dependency=afterok:3 {WAIT} --partition=racks {STAGE}"
            " get run-2 /work/ada/results --missing-ok"
        ),
    ]
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "job " in line and not line.startswith("$")] == [
        "stage-in: job 1", "job 2", "put-run: job 3", "get: job 4",
    ]  # fmt: skip
    assert "added --comment=s3-data: else the burst governor counts the data again" in lines


def test_a_job_waits_for_all_of_its_data(cluster):
    assert submit("--stage-in", "a=/work/a", "--stage-in", "b=/work/b") == 0
    calls = cluster()
    assert len(calls) == 3
    assert "--dependency=afterok:1:2 " in calls[2]


def test_a_dry_run_submits_nothing_and_shows_each_call(cluster, capsys):
    assert submit("--dry-run", "--json", *BOTH) == 0
    made = json.loads(capsys.readouterr().out)
    assert [(item["role"], item["job"]) for item in made["chain"]] == [
        ("stage-in", "STAGE-IN-1"), ("job", "JOB"), ("put-run", "PUT-RUN"), ("get", "GET"),
    ]  # fmt: skip
    assert "--dependency=afterok:STAGE-IN-1" in made["chain"][1]["argv"]
    assert made["job"] is None
    assert cluster() == []
    assert submit("--dry-run", *BOTH) == 0
    assert "put-run JOB --missing-ok" in capsys.readouterr().out


def test_json_has_the_job_and_its_chain(cluster, capsys):
    assert submit("--json", *BOTH) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["job"], [item["job"] for item in made["chain"]]) == ("2", ["1", "2", "3", "4"])
    assert submit("--json") == 0
    assert json.loads(capsys.readouterr().out)["chain"] == []


def test_a_chain_that_breaks_leaves_no_job(cluster, monkeypatch, capsys):
    monkeypatch.setenv("BROKEN", "put-run")
    assert submit(*BOTH) == 1
    assert cluster()[-2:] == ["scancel 2", "scancel 1"]
    assert "out of ids" in capsys.readouterr().err


def test_a_chain_that_a_person_interrupts_leaves_no_job(cluster, monkeypatch):
    submit_one = SlurmClient.submit

    def interrupted(self, argv):
        if "put-run" in argv:
            raise KeyboardInterrupt
        return submit_one(self, argv)

    monkeypatch.setattr(SlurmClient, "submit", interrupted)
    assert submit(*BOTH) == INTERRUPTED
    assert cluster()[-2:] == ["scancel 2", "scancel 1"]


def test_a_copy_that_slurm_would_refuse_is_found_before_anything_is_submitted(
    cluster, monkeypatch, capsys
):
    monkeypatch.setenv("REFUSED", "stage.sbatch put ")
    assert submit(*BOTH) == 1
    assert "Slurm would refuse the stage-in job: no such file" in capsys.readouterr().out
    assert cluster() == []


@pytest.mark.parametrize("option", ["--dependency=afterok:7", "--array=1-4"])
def test_a_job_that_can_not_be_in_a_chain_is_refused(cluster, capsys, option):
    assert submit(*BOTH, option) == 1
    assert "[staging]" in capsys.readouterr().out
    assert cluster() == []


def test_an_array_may_wait_for_its_data(cluster):
    assert submit("--stage-in", "a=/work/a", "--array=1-4") == 0
    assert len(cluster()) == 2


def test_the_comment_of_the_caller_is_kept(cluster):
    assert submit("--stage-in", "a=/work/a", "--comment=paper 7") == 0
    assert "--comment=s3-data" not in cluster()[1]


def test_partitions_are_taken_from_the_options(cluster):
    words = ("--racks", "racks", "--cloud", "burst")
    assert submit(*BOTH, *words, partition="--partition=racks") == 0
    assert [call.partition("--partition=")[2].split()[0] for call in cluster()] == [
        "racks", "racks", "burst", "racks",
    ]  # fmt: skip


def test_a_copy_is_charged_to_the_jobs_account_and_has_a_folder_of_its_own(cluster, monkeypatch):
    monkeypatch.setenv("TOOLKIT_RUN_ID", "paper")
    assert submit(*BOTH, "--account=vision", "--chdir=/work/ada") == 0
    calls = cluster()
    assert [call.startswith("with TOOLKIT_RUN_ID") for call in calls] == [False, True, False, False]
    assert all("--account=vision" in call and "--chdir=/work/ada" in call for call in calls)
    assert "put-run paper --missing-ok" in calls[2]
    assert "get run-paper /work/ada/results" in calls[3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--stage-in", "imagenet"), "expected NAME=/FOLDER"),
        (("--stage-in", "imagenet=data"), "expected NAME=/FOLDER"),
        (("--stage-out", "results"), "expected a whole path"),
        (("--racks", "racks"), "belong to --stage-in"),
    ],
)
def test_words_that_name_no_copy_are_wrong_usage(cluster, capsys, words, message):
    assert submit(*words) == 2
    assert message in capsys.readouterr().err
    assert cluster() == []


def test_a_name_that_no_dataset_can_have_is_refused(cluster, capsys):
    assert submit("--stage-in", "Image Net=/work/a") == 2
    assert "can't be the name of a dataset" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("partition", "message"), [("", "say by --racks"), ("--partition=racks", "say by --cloud")]
)
def test_a_partition_that_nobody_named_is_asked_for(cluster, capsys, partition, message):
    assert submit(*BOTH, partition=partition) == 2
    assert message in capsys.readouterr().err
