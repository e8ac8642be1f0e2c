"""A run's record is enough to judge it and submit it again."""

import json
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from tests.fakes import nvml
from tests.fakes.nvml import Driver
from toolkit.training.io.durable_files import read_json
from toolkit.training.recording import gpu_sampler, hardware
from toolkit.training.recording.gpu_sampler import Reading, Sampler
from toolkit.training.reproduce import (
    gather as gathering,
    git_commit,
    installed_packages,
    submission,
    untracked_files,
)
from toolkit.training.run_folder.run_folder import RunFolder

REPO = Path(__file__).resolve().parents[4]


def git(folder, *words):
    identity = ("-c", "user.name=ada", "-c", "user.email=ada@example.com")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    """A committed script and a module beside it."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('v1')\n")
    (folder / "model.py").write_text("WIDTH = 1\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Begin")
    return folder


def test_a_clean_checkout_has_a_commit_and_no_patch(checkout):
    code = git_commit.code_of(checkout / "train.py", {})
    assert (len(code.commit), code.dirty, code.patch) == (40, False, None)
    assert "toolkit.git_diff" not in code.tags()


def test_the_patch_of_a_dirty_checkout_makes_its_code_again(checkout, tmp_path):
    (checkout / "model.py").write_text("WIDTH = 2\n")
    code = git_commit.code_of(checkout / "train.py", {})
    assert code.dirty
    assert code.tags()["toolkit.git_diff"] == f"sha256:{code.patch_sha256}"
    git(tmp_path, "clone", "-q", str(checkout), str(tmp_path / "again"))
    (tmp_path / "code.patch").write_bytes(code.patch)
    git(tmp_path / "again", "apply", "--binary", str(tmp_path / "code.patch"))
    assert (tmp_path / "again" / "model.py").read_text() == "WIDTH = 2\n"


def test_a_patch_that_is_too_large_is_known_by_its_hash_alone(checkout, monkeypatch):
    monkeypatch.setattr(git_commit, "PATCH_LIMIT", 10)
    (checkout / "model.py").write_text("WIDTH = 2\n")
    code = git_commit.code_of(checkout / "train.py", {})
    assert (code.patch, code.tags()["toolkit.git_diff_kept"]) == (None, "false")
    assert code.patch_bytes > 10


def test_two_environments_are_the_same_when_their_packages_are():
    text = installed_packages.text()
    assert text.startswith("# python 3.")
    assert any(line.startswith("pytest==") for line in text.splitlines())
    assert (
        installed_packages.digest(text)
        == installed_packages.digest(text)
        != installed_packages.digest(text + "x==1\n")
    )


def test_a_package_is_what_the_headers_of_its_metadata_say(tmp_path, monkeypatch):
    """Read new and old metadata; an uninstall left a folder without any."""
    headers = "Metadata-Version: 2.1\nName: Some_Package\nVersion: 1.2\n"
    for name, content in (
        ("some_package-1.2.dist-info/METADATA", f"{headers}\nName: another\nVersion: 3\n"),
        ("old.egg-info/PKG-INFO", "Name: old\nVersion: 7"),
        ("half-1.dist-info/RECORD", ""),
    ):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(content)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert installed_packages.lines.__wrapped__()[1:] == ("old==7", "some-package==1.2")


ENVIRONMENT = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_NAME": "digits",
    "SLURM_JOB_PARTITION": "spot",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_GPUS_PER_NODE": "4",
    "SLURM_JOB_START_TIME": "1000",
    "SLURM_JOB_END_TIME": "4600",
    "TOOLKIT_EXPERIMENT": "night run",
    "TOOLKIT_ATTEMPT_STARTED": "999",
    "NCCL_DEBUG": "INFO",
    "HF_TOKEN": "hf_secret",
    "TOOLKIT_API_KEY": "secret",
    "LANG": "C.UTF-8",
}


def record(run_dir, *arguments, script="#!/bin/bash\n#SBATCH --requeue\n", **more):
    """Write the records of a submission, as the batch script does."""
    batch = run_dir.parent / "slurm_script"
    batch.write_text(
        f'{script}source "{REPO}/jobscripts/lib/record.sh"\nSUBMITTED=("$@")\nrecord_submission\n'
    )
    run_dir.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "TOOLKIT_RUN_DIR": str(run_dir), **ENVIRONMENT}
    argv = ["bash", str(batch), *arguments]
    subprocess.run(argv, check=True, env=environment | more, cwd=run_dir.parent)
    return batch


def test_what_was_submitted_is_kept_word_for_word_and_no_secret_with_it(tmp_path, checkout):
    odd = ["train.py", "two words", "", "--x=é\n$HOME"]
    batch = record(tmp_path / "run", *odd)
    code = git_commit.code_of(checkout / "train.py", {})
    made = submission.capture(tmp_path / "run", code, lock="sha256:1", patch="")
    assert made == submission.read(tmp_path / "run")
    assert made.arguments == tuple(odd)
    assert made.directory == str(tmp_path)
    assert submission.job_script(tmp_path / "run").read_bytes() == batch.read_bytes()
    assert made.options == {
        "job-name": "digits",
        "partition": "spot",
        "nodes": "2",
        "gpus-per-node": "4",
        "time": "60",
    }
    assert made.environment == {"TOOLKIT_EXPERIMENT": "night run", "NCCL_DEBUG": "INFO"}
    kept = "".join(p.read_text() for p in (tmp_path / "run" / "submission").iterdir())
    assert "secret" not in kept


def test_credentials_in_values_stay_in_the_part_that_only_their_user_can_read(tmp_path, checkout):
    variables = {
        "SBATCH_EXPORT": "ALL,WANDB_API_KEY=hidden,DATA='a,hidden'",
        "MLFLOW_TRACKING_URI": "https://ada:hid@den@mlflow.example/path@2",
        "TOOLKIT_CONTAINER": "docker://pytorch@sha256:c0",
        "TOKENIZERS_PARALLELISM": "false",
        "TOKENIZERS_HUB_KEY": "secret",
        "HF_TOKENS": "secret",
    }
    run_dir = tmp_path / "run"
    record(run_dir, "train.py", **variables)
    made = submission.capture(
        run_dir, git_commit.code_of(checkout / "train.py", {}), lock="", patch=""
    )
    stated = {"TOOLKIT_EXPERIMENT": "night run", "NCCL_DEBUG": "INFO"}
    public = {
        "MLFLOW_TRACKING_URI": "https://mlflow.example/path@2",
        "TOOLKIT_CONTAINER": "docker://pytorch@sha256:c0",
        "TOKENIZERS_PARALLELISM": "false",
    }
    assert made.environment == stated | public
    own = {name: variables[name] for name in ("SBATCH_EXPORT", *public)}
    assert submission.job_environment(run_dir, made) == stated | own
    written = run_dir / "submission.json"
    assert "hid" not in written.read_text()
    assert written.stat().st_mode & 0o777 == 0o600
    assert submission.parts_folder(run_dir).stat().st_mode & 0o777 == 0o700


def test_a_requeued_attempt_leaves_the_first_ones_submission(tmp_path):
    record(tmp_path / "run", "train.py", "first")
    record(tmp_path / "run", "train.py", "second")
    assert (tmp_path / "run/submission/arguments").read_bytes() == b"train.py\0first\0"


SACCT = """#!/bin/bash
[[ "$*" == *"--jobs=$ASKED --format=SubmitLine"* ]] && printf '%s\\n' "$SAYS"
"""


@pytest.mark.parametrize(
    ("says", "typed"), [("sbatch --exclusive job.sbatch train.py", ("--exclusive",)), ("", None)]
)
def test_sbatchs_own_words_are_accountings(tmp_path, checkout, says, typed):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sacct").write_text(SACCT)
    (folder / "sacct").chmod(0o755)
    task = {"SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "2"}
    path = {"PATH": f"{folder}:{os.environ['PATH']}", "SAYS": says, "ASKED": "10_2"}
    record(tmp_path / "run", "train.py", **path, **task)
    code = git_commit.code_of(checkout / "train.py", {})
    made = submission.capture(tmp_path / "run", code, lock="", patch="")
    assert submission.typed_options(tmp_path / "run", made) == typed


def look(checkout, run_dir=Path("/runs/12")):
    return untracked_files.list_untracked(git_commit.code_of(checkout / "train.py", {}), run_dir)


def test_code_and_settings_that_git_does_not_know_are_recorded_and_nothing_else(checkout):
    (checkout / ".gitignore").write_text("ignored.py\n")
    for name in ("ignored.py", "slurm-1.out", "helper.py", "api_token.json", "tokenizer.json"):
        (checkout / name).write_text(name)
    (checkout / "large.so").write_bytes(bytes(untracked_files.MAX_FILE_BYTES + 1))
    (checkout / "runs" / "12").mkdir(parents=True)
    (checkout / "runs" / "12" / "run.json").write_text("{}")
    found = look(checkout, checkout / "runs" / "12")
    assert found.complete
    assert {name: mark.partition(":")[0] for name, mark in found.marks.items()} == {
        "api_token.json": "not looked at",  # a short secret could be guessed by its hash
        "helper.py": "sha256",
        "large.so": "bytes",
        "tokenizer.json": "sha256",
    }


def test_of_more_files_than_are_recorded_the_nearest_are(checkout, monkeypatch):
    (checkout / "far").mkdir()
    for name in ("far/a.py", "near.py"):
        (checkout / name).write_text("")
    monkeypatch.setattr(untracked_files, "MAX_FILES", 1)
    found = look(checkout)
    assert (list(found.marks), found.complete) == (["near.py"], False)


def test_a_checkout_whose_files_can_not_be_listed_in_time_is_not_known_whole(checkout, monkeypatch):
    monkeypatch.setattr(untracked_files, "_TIMEOUT", 0)
    assert look(checkout) == untracked_files.Untracked()


def test_of_a_script_that_is_in_no_checkout_the_modules_it_imported_are_recorded(
    tmp_path, monkeypatch
):
    files = ("train.py", "model.py", "another.py", "venv/site-packages/torch.py", "pkg/layers.py")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name in (*files[:2], *files[3:]):
        module = types.SimpleNamespace(__file__=str(tmp_path / name))
        monkeypatch.setitem(sys.modules, f"_of_this_test.{name}", module)
    found = untracked_files.list_untracked(
        git_commit.Code(str(tmp_path / "train.py"), ""), Path("/runs/12")
    )
    assert list(found.marks) == ["model.py", "train.py", "pkg/layers.py"]
    assert not found.complete


def test_variables_that_are_not_kept_are_known_by_name_alone(tmp_path, checkout):
    theirs = {
        "WIDTH": "hidden",
        "lower_1": "hidden",
        "ODD-NAME": "x",
        "A" * 65: "x",
        "SSH_TTY": "x",
    }
    record(tmp_path / "run", "train.py", **theirs)
    code = git_commit.code_of(checkout / "train.py", {})
    made = submission.capture(tmp_path / "run", code, lock="", patch="")
    assert made.unkept == ("HF_TOKEN", "TOOLKIT_API_KEY", "WIDTH", "lower_1")
    parts = (tmp_path / "run" / "submission").iterdir()
    assert not any(b"hidden" in part.read_bytes() for part in parts)


def test_a_run_without_a_batch_script_has_no_submission(tmp_path, checkout):
    code = git_commit.code_of(checkout / "train.py", {})
    assert submission.capture(tmp_path, code, lock="", patch="") is None
    assert submission.read(tmp_path) is None


def test_the_dossier_has_a_tag_and_a_file_for_everything(tmp_path, checkout, attempt_of):
    (checkout / "model.py").write_text("WIDTH = 2\n")
    record(tmp_path / "run", "train.py")
    environment = {"TOOLKIT_CONTAINER_DIGEST": "sha256:c0", "TOOLKIT_DATASET": "sha256:da"}

    def gather():
        run_dir = RunFolder(tmp_path / "run")
        script = checkout / "train.py"
        return gathering.gather(
            attempt_of(), run_dir, seed=3, script=script, environment=environment
        )

    found = gather()
    assert found.tags["toolkit.seed"] == "3"
    assert found.tags["toolkit.dataset"] == "sha256:da"
    assert found.tags["toolkit.container"] == "sha256:c0"
    assert found.tags["toolkit.environment"].startswith("sha256:")
    kinds = sorted(path.name.split("-")[0] for path in found.artifacts)
    assert kinds == ["code", "environment", "job.sbatch", "submission.json"]
    record_kept = read_json(tmp_path / "run" / "submission.json")
    assert (tmp_path / "run" / record_kept["patch"]).exists()
    assert gather().artifacts == ()  # for the next attempt nothing has changed


def test_hardware_is_named_by_instances_and_gpus():
    found = hardware.hardware_of([{"instance_type": "g5.12xlarge"}] * 2, ["NVIDIA A10G"] * 8)
    assert str(found) == "2 x g5.12xlarge, 8 x NVIDIA A10G"
    assert found.peak_flops == 8 * 70e12
    assert str(hardware.hardware_of([], [])) == "unknown"
    assert hardware.hardware_of([], ["NVIDIA Unheard"]).peak_flops is None


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
        ("Tesla T4", 65),
        ("NVIDIA A10G", 70),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H200", 989),
        ("NVIDIA H200 NVL", 835),
        ("NVIDIA B200", 2250),
        ("NVIDIA L40", None),
        ("NVIDIA GB200", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", None),
    ],
)
def test_the_peak_is_that_of_the_gpu_and_not_of_one_with_a_like_name(name, tflops):
    assert hardware.peak_tflops(name) == tflops


def test_gpus_of_all_nodes_are_put_together(tmp_path):
    assert gpu_sampler.metrics(tmp_path, "12.0") == {}
    readings = {
        "12.0.n1": Reading(80.0, 2**30, 2**31),
        "12.0.n2": Reading(40.0, 2**30 * 3 // 2, 2**31),
        "12.1.n1": Reading(1.0, 1, 1),
    }
    for name, found in readings.items():
        Sampler(lambda f=found: [f], tmp_path / "gpus" / f"{name}.json", print, interval=99).stop()
    assert gpu_sampler.metrics(tmp_path, "12.0") == {
        "toolkit.gpu_utilization_percent": 60.0,
        "toolkit.gpu_memory_peak_mib": 1536.0,
        "toolkit.gpu_memory_peak_percent": 75.0,
    }


def test_a_gpu_that_stops_answering_ends_the_sampling_and_nothing_else(tmp_path):
    said = []

    def broken():
        raise OSError("GPU is lost")

    sampler = Sampler(broken, tmp_path / "gpus" / "12.0.n1.json", said.append, interval=0.001)
    deadline = time.monotonic() + 10
    while sampler._thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.001)
    sampler.stop()
    assert gpu_sampler.metrics(tmp_path, "12.0") == {}
    assert said == ["GPU usage is no longer recorded: OSError('GPU is lost')"]


def test_an_attempt_on_an_instance_with_gpus_records_what_its_own_are_at(
    attempt_of, monkeypatch, capsys
):
    """Read the GPUs with nvidia-ml-py, on a fake driver."""
    nvml.install(monkeypatch, Driver((90, 3 << 30, 4 << 30), (10, 1 << 30, 4 << 30), (50, 0, 1)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    attempt = attempt_of()
    sampler = gpu_sampler.start(attempt, ["NVIDIA H100"] * 2, print)
    sampler.stop()
    assert gpu_sampler.metrics(attempt.run_dir, attempt.key) == {
        "toolkit.gpu_utilization_percent": 50.0,
        "toolkit.gpu_memory_peak_mib": 3072.0,
        "toolkit.gpu_memory_peak_percent": 75.0,
    }
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("driver", "why"),
    [
        (Driver(refuses={"nvmlInitWithFlags": nvml.DRIVER_NOT_LOADED}), "DriverNotLoaded"),
        (Driver(), "the driver shows no GPU"),
        (None, "pynvml"),  # nvidia-ml-py is not installed
    ],
)
def test_gpus_that_training_sees_and_nobody_can_ask_are_said_once_and_their_absence_never(
    attempt_of, monkeypatch, driver, why
):
    if driver is None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
    else:
        nvml.install(monkeypatch, driver)
    said = []
    assert gpu_sampler.start(attempt_of(), ["NVIDIA H100"], said.append) is None
    assert len(said) == 1
    assert why in said[0]
    assert gpu_sampler.start(attempt_of(), [], said.append) is None
    assert len(said) == 1


def test_a_gpu_that_tells_its_memory_alone_is_logged_and_costs_no_attempt(attempt_of, monkeypatch):
    """Log the missing utilization of a GPU's share (MIG)."""
    refuses = {"nvmlDeviceGetUtilizationRates": nvml.NOT_SUPPORTED}
    nvml.install(monkeypatch, Driver((0, 1, 2), refuses=refuses))
    said = []
    gpu_sampler.start(attempt_of(), ["NVIDIA H100"], said.append).stop()
    assert len(said) == 1
    assert "NotSupported" in said[0]


def test_only_the_gpus_that_the_job_was_given_are_sampled():
    assert gpu_sampler._visible_indexes(8, {"CUDA_VISIBLE_DEVICES": "2,5"}) == [2, 5]
    assert gpu_sampler._visible_indexes(2, {"CUDA_VISIBLE_DEVICES": "4,5"}) == [
        0,
        1,
    ]  # the cgroup hides the rest
    assert gpu_sampler._visible_indexes(2, {}) == [0, 1]


def test_a_record_of_another_version_is_no_record(tmp_path):
    (tmp_path / "submission.json").write_text(json.dumps({"version": 99}))
    assert submission.read(tmp_path) is None
