"""Sessions of tests that run beside each other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run_session(folder: Path, body: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in `folder`, on one test with `body`."""
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "test_one.py").write_text(f"def test_one(tmp_path):\n    {body}\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
    ]
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *options, "test_one.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["alone", "workers"])
def test_a_session_leaves_nothing_in_a_folder_that_it_shares(
    tmp_path: Path, options: list[str]
) -> None:
    session = run_session(tmp_path, "(tmp_path / 'file').touch()", *options)

    assert session.returncode == 0, session.stdout
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_failed_session_keeps_the_files_of_its_tests(tmp_path: Path) -> None:
    session = run_session(tmp_path, "(tmp_path / 'file').touch(); assert False")

    assert session.returncode == 1, session.stdout
    [file] = (tmp_path / "tmp").rglob("file")
    assert "pytest-of-" not in str(file.relative_to(tmp_path))


def test_a_session_removes_the_folders_of_sessions_that_failed_days_ago(tmp_path: Path) -> None:
    assert run_session(tmp_path, "assert False").returncode == 1
    [failed] = (tmp_path / "tmp").iterdir()
    os.utime(failed, times=(0, 0))

    session = run_session(tmp_path, "pass")

    assert session.returncode == 0, session.stdout
    assert list((tmp_path / "tmp").iterdir()) == []
