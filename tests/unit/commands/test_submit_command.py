"""`toolkit submit` checks a script, adds options and calls sbatch.

Added options are printed, and an error stops the submission. sbatch gets the printed command line.
"""

import json
import os
import sys
from pathlib import Path

import pytest

import toolkit
from toolkit.cli import run
from toolkit.config.training import Data
from toolkit.submit import checks, plan, slurm_client
from toolkit.submit.slurm_client import SlurmClient
from toolkit.training.reproduce import submission
from toolkit.training.reproduce.git_commit import Code
from toolkit.training.run_folder import stop_forecast

GOOD = "#!/bin/bash\n#SBATCH --requeue\n#SBATCH --open-mode=append\npython tokenize.py\n"
BARE = "#!/bin/bash\npython tokenize.py\n"
PROGRAM = """#!/bin/bash
echo "$(basename "$0") $*" >>"$CALLS"
case "$(basename "$0") $*" in
  "sinfo "*) printf 'spot\\nany\\n' ;;
  "sacctmgr "*) printf 'vision\\nvision\\n' ;;
  "sbatch --test-only "*"--nodes=99"*) echo "sbatch: error: Requested node" >&2; exit 1 ;;
  "sbatch --test-only "*) ;;
  "sbatch "*) echo "4711;demo" ;;
esac
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A host with stand-ins for Slurm's programs, which record their calls."""
    (tmp_path / "bin").mkdir()
    for name in ("sbatch", "sinfo", "sacctmgr"):
        program = tmp_path / "bin" / name
        program.write_text(PROGRAM)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    for name in [name for name in os.environ if name.startswith("SBATCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.sbatch").write_text(GOOD)
    (tmp_path / "bare.sbatch").write_text(BARE)
    (tmp_path / "bad.sbatch").write_text(GOOD.replace("--requeue", "--no-requeue"))
    return tmp_path


def sbatch_calls(cluster):
    lines = (cluster / "calls").read_text().splitlines() if (cluster / "calls").exists() else []
    return [line for line in lines if line.startswith("sbatch ") and "--test-only" not in line]


def test_submit_passes_a_good_script_to_sbatch_unchanged(cluster, capsys):
    assert run(["submit", "--partition=spot", "good.sbatch", "--epochs", "3"]) == 0
    assert sbatch_calls(cluster) == ["sbatch --parsable --partition=spot good.sbatch --epochs 3"]
    out = capsys.readouterr().out
    assert "$ sbatch --parsable --partition=spot good.sbatch --epochs 3" in out
    assert "job 4711" in out


def test_submit_adds_missing_options_and_prints_them(cluster, capsys):
    assert run(["submit", "bare.sbatch"]) == 0
    assert sbatch_calls(cluster) == ["sbatch --parsable --requeue --open-mode=append bare.sbatch"]
    assert "added --open-mode=append" in capsys.readouterr().out


def test_submit_does_not_override_options_of_the_user(cluster, monkeypatch):
    monkeypatch.setenv("SBATCH_OPEN_MODE", "truncate")
    assert run(["submit", "--force", "--no-requeue", "bare.sbatch"]) == 0
    assert sbatch_calls(cluster) == ["sbatch --parsable --no-requeue bare.sbatch"]


TRAINS = """#!/bin/bash
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@90
trap stop USR1
srun torchrun --shutdown-timeout=60 --rdzv-endpoint=$ADDR:$PORT train.py &
wait $!
exit $?
"""
LINES = [line.removeprefix("#SBATCH ") for line in TRAINS.splitlines() if "#SBATCH" in line]


@pytest.mark.parametrize("folder", [Data().cache, "/var/tmp"])
def test_checkpoints_on_a_nodes_own_disk_are_an_error(cluster, capsys, folder):
    saves = TRAINS.replace("train.py", f"train.py --checkpoint-dir={folder}/run")
    (cluster / "saves.sbatch").write_text(saves)
    assert run(["submit", "--dry-run", "saves.sbatch"]) == 1
    assert f"files in {folder}/run are lost" in capsys.readouterr().out


@pytest.fixture
def careful_output(cluster, capsys):
    """A function that submits a careful script with extra options.

    It returns the output.
    """
    (cluster / "careful.sbatch").write_text(TRAINS)

    def output_of(*options):
        run(["submit", "--dry-run", *options, "careful.sbatch"])
        return capsys.readouterr().out

    assert "fix:" not in output_of()
    return output_of


@pytest.mark.parametrize(
    ("slug", "option"),
    [
        ("no-requeue", "--no-requeue"),
        ("open-mode", "--open-mode=truncate"),
        ("signal-to-all", "--signal=USR1@90"),
        ("signal-late", "--signal=B:USR1@5"),
        ("node-pinned", "--nodelist=gpu-001"),
    ],
)
def test_an_option_that_loses_work_is_found_on_the_command_line(careful_output, slug, option):
    output = careful_output(option)
    assert ": on the command line: " in output
    assert f"[{slug}]\n" in output
    assert "fix: #SBATCH" not in output


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SBATCH_NO_REQUEUE", "1"),
        ("SBATCH_OPEN_MODE", "truncate"),
        ("SBATCH_SIGNAL", "USR1@90"),
    ],
)
def test_an_option_that_loses_work_is_found_in_the_environment(
    careful_output, monkeypatch, variable, value
):
    monkeypatch.setenv(variable, value)
    assert f": in {variable}: " in careful_output()
    assert "fix:" not in careful_output(*LINES)


def test_options_of_the_command_line_satisfy_a_script_without_options(cluster, capsys):
    bare = "".join(line for line in TRAINS.splitlines(True) if not line.startswith("#SBATCH"))
    (cluster / "trains.sbatch").write_text(bare)
    assert run(["submit", "--dry-run", "--json", *LINES, "trains.sbatch"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_an_error_stops_submit_unless_forced(cluster, capsys):
    assert run(["submit", "bad.sbatch"]) == 1
    assert sbatch_calls(cluster) == []
    captured = capsys.readouterr()
    assert "[no-requeue]" in captured.out
    assert "[submit-refused]" in captured.err
    assert run(["submit", "--force", "bad.sbatch"]) == 0
    assert len(sbatch_calls(cluster)) == 1


@pytest.mark.parametrize(
    ("option", "fix"),
    [("--partition=spto", "--partition=spot"), ("--account=visoin", "--account=vision")],
)
def test_an_unknown_partition_or_account_is_found_before_sbatch_is_called(
    cluster, capsys, option, fix
):
    assert run(["submit", option, "good.sbatch"]) == 1
    assert f"fix: {fix}" in capsys.readouterr().out


def test_a_refusal_by_slurm_is_an_error(cluster, capsys):
    assert run(["submit", "--nodes=99", "good.sbatch"]) == 1
    assert "Slurm would refuse the job: Requested node" in capsys.readouterr().out


def test_a_dry_run_submits_nothing_and_prints_the_plan(cluster, capsys):
    assert run(["submit", "--dry-run", "--json", "bare.sbatch", "x"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["argv"] == [
        "sbatch", "--parsable", "--requeue", "--open-mode=append", "bare.sbatch", "x",
    ]  # fmt: skip
    assert [one["option"] for one in result["added"]] == ["--requeue", "--open-mode=append"]
    assert result["job"] is None
    assert sbatch_calls(cluster) == []
    assert run(["submit", "--dry-run", "bad.sbatch"]) == 1


PINNED = "team/image@sha256:" + "0123456789abcdef" * 4


def test_a_container_is_passed_to_the_ranks_and_not_to_sbatch(cluster, capsys):
    (cluster / "ours.sbatch").write_text(GOOD + 'run_workers "$@"\n')
    program = (cluster / "bin" / "sbatch").read_text()
    (cluster / "bin" / "sbatch").write_text(
        program.replace(
            "#!/bin/bash\n", '#!/bin/bash\necho "in ${TOOLKIT_CONTAINER-}" >>"$CALLS"\n'
        )
    )
    assert run(["submit", f"--container={PINNED}", "ours.sbatch", "train.py"]) == 0
    assert sbatch_calls(cluster) == ["sbatch --parsable ours.sbatch train.py"]
    assert f"in {PINNED}" in (cluster / "calls").read_text()
    assert f"$ env TOOLKIT_CONTAINER={PINNED} sbatch" in capsys.readouterr().out


def test_a_container_that_is_not_pinned_or_not_used_is_refused(cluster, capsys):
    assert run(["submit", "--container=team/image:latest", "good.sbatch"]) == 1
    output = capsys.readouterr().out
    assert "[container-not-pinned]" in output
    assert "[container-unheard]" in output
    assert sbatch_calls(cluster) == []


def test_a_container_of_the_environment_is_checked_like_an_option(cluster, monkeypatch, capsys):
    monkeypatch.setenv("TOOLKIT_CONTAINER", "team/image:latest")
    assert run(["submit", "good.sbatch"]) == 1
    output = capsys.readouterr().out
    assert "[container-not-pinned]" in output
    assert "[container-unheard]" in output


def test_a_script_that_does_not_start_ranks_in_its_container_is_refused(cluster, capsys):
    preflight_lines = 'source "$TOOLKIT_JOBSCRIPTS/lib/preflight.sh"\npreflight "$@"\n'
    (cluster / "half.sbatch").write_text(
        f"{GOOD}{preflight_lines}# not by run_workers\nsrun python x.py\n"
    )
    assert run(["submit", f"--container={PINNED}", "half.sbatch", "train.py"]) == 1
    assert "[container-unheard]" in capsys.readouterr().out


def test_submit_says_that_the_time_of_a_stop_is_unknown(cluster, capsys):
    assert run(["submit", "--dry-run", "good.sbatch"]) == 0
    output = capsys.readouterr().out
    assert "the time of a stop is unknown, as no earlier run" in output
    assert "--checkpoint-gib" in output
    assert run(["submit", "--dry-run", "--json", "good.sbatch"]) == 0
    assert json.loads(capsys.readouterr().out)["stop"] is None


def test_submit_warns_if_a_stop_takes_longer_than_the_notice(cluster, capsys):
    words = ["submit", "--dry-run", "--write-gib-s=0.5", "--checkpoint-gib=98", "good.sbatch"]
    assert run(words) == 0
    out = capsys.readouterr().out
    assert "a stop would take 411 s and a spot notice gives 120" in out
    assert "write at 1991 MiB/s, not 512" in out
    assert checks.StopEstimate.from_size(98, 2.4).forecast.problem() is None


@pytest.fixture
def earlier_run(cluster, monkeypatch):
    """A function that makes an earlier run of good.sbatch with train.py.

    The run measured `save_seconds` for a save.
    """
    library = Path(toolkit.__file__).parents[1]
    program = ("env", f"PYTHONPATH={library}", sys.executable, "-m", "toolkit.training")
    monkeypatch.setattr(slurm_client, "TRAINING_PROGRAM", program)
    monkeypatch.setenv("TOOLKIT_RUNS", str(cluster / "runs"))

    def make(job, save_seconds, *, script=GOOD, arguments=("train.py", "--epochs=3")):
        folder = cluster / "runs" / job
        (folder / "submission").mkdir(parents=True)
        (folder / "submission" / "job.sbatch").write_text(script)
        for name, words in (("arguments", arguments), ("environment", (f"SLURM_JOB_ID={job}",))):
            (folder / "submission" / name).write_text("".join(f"{word}\0" for word in words))
        (folder / "submission" / "directory").write_text("/home/ada")
        submission.capture(folder, Code("train.py", ""), lock="", patch="")
        forecast = stop_forecast.forecast(
            step_seconds=0.5,
            in_flight_seconds=save_seconds,
            save_seconds=save_seconds,
            saved_bytes=2**36,
        )
        stop_forecast.write_measured(folder, forecast, job, 8)
        os.utime(folder / stop_forecast.FILE, (int(job), int(job)))

    return make


def test_submit_warns_with_the_stop_time_that_an_earlier_run_measured(earlier_run, capsys):
    earlier_run("11", 180)
    assert run(["submit", "--dry-run", "good.sbatch", "train.py", "--epochs=3"]) == 0
    out = capsys.readouterr().out
    assert "a stop would take 378 s and a spot notice gives 120" in out
    assert "measured by job 11 on 8 ranks" in out
    assert "every rank writes its share" in out


def test_the_newest_of_the_most_similar_runs_supplies_the_stop_time(earlier_run, capsys):
    earlier_run("11", 10)
    earlier_run("12", 20)
    earlier_run("13", 180, script=BARE)  # another batch script
    earlier_run("14", 180, arguments=("train.py", "--epochs=9"))
    earlier_run("15", 180, arguments=("other.py",))

    def stop_source(*arguments, script="good.sbatch"):
        assert run(["submit", "--dry-run", "--json", script, *arguments]) == 0
        return (json.loads(capsys.readouterr().out)["stop"] or {}).get("source", "")

    assert "job 12 " in stop_source("train.py", "--epochs=3")
    assert "job 14 " in stop_source("train.py", "--epochs=5")
    assert "job 13 " in stop_source("train.py", "--epochs=5", script="bare.sbatch")
    assert stop_source("new.py") == stop_source() == ""


def test_submit_prints_a_stop_time_that_fits_and_prefers_the_users_size(earlier_run, capsys):
    earlier_run("11", 10)
    words = ["submit", "--dry-run", "good.sbatch", "train.py", "--epochs=3"]
    assert run(words) == 0
    assert "a stop would take 38 s of a spot notice's 120 (measured by" in capsys.readouterr().out
    assert run([words[0], "--checkpoint-gib=2", *words[1:]]) == 0
    assert "a stop would take 23 s of a spot notice's 120 (2 GiB at" in capsys.readouterr().out


def test_submit_requires_sbatch_and_a_script(cluster, monkeypatch):
    assert run(["submit", "--nodes=2"]) == 2
    monkeypatch.setenv("PATH", "/nowhere")
    assert run(["submit", "good.sbatch"]) == 2


def test_the_command_line_wins_over_the_environment_and_that_over_the_script():
    text = "#!/bin/bash\n#SBATCH -p any\n#SBATCH -A vision\n"
    job_plan = plan.plan([], "x", [], text=text, environment={"SBATCH_PARTITION": "spot"})
    assert (job_plan.partition, job_plan.account) == ("spot", "vision")
    job_plan = plan.plan(
        ["-p", "gpu"], "x", [], text=text, environment={"SBATCH_PARTITION": "spot"}
    )
    assert job_plan.partition == "gpu"


def test_no_account_is_unknown_without_accounting():
    class Runner:
        def run(self, argv, *, timeout=60):
            return ""

    job_plan = plan.plan(["--account=any"], "x", [], text=GOOD, environment={})
    assert checks.findings(job_plan, GOOD, SlurmClient(Runner()), user="ada", stop=None) == ()
