"""Our power-save programs on a site's controller, with the site's own program behind them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import PROGRAM_SECONDS

PYTHONS = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1  # Python ignores them
ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """\
#!/bin/sh
# The site's program: it notes how it was called.
exec > {noted} 2>&1
echo "$0 $*"
cat "$SLURM_RESUME_FILE" || echo none
grep -E 'SigIgn' /proc/$$/status
echo "pid $$ site $SITE"
exit 7
"""


class Controller:
    """A site's controller: site.json, and the site's own program."""

    def __init__(self, tmp_path: Path) -> None:
        self.noted, self.ours = tmp_path / "noted", tmp_path / "ours"
        self.program, self.site = tmp_path / "site-program", tmp_path / "site.json"
        self.resume_file, self.state = tmp_path / "resume.json", tmp_path / "state"
        self.resume_files = self.state / "resume-files"
        self.program.write_text(PROGRAM.format(noted=self.noted))
        self.program.chmod(0o755)
        self.state.mkdir()
        self.write_site({"resume": str(self.program), "suspend": str(self.program)})

    def write_site(self, programs: dict[str, str]) -> None:
        self.site.write_text(json.dumps({"nodes": "gpu-[001-003]", "programs": programs}))

    def call(self, module: str, *argv: str) -> subprocess.Popen[bytes]:
        """Start a program as slurmctld does; it only notes its own nodes."""
        setup = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
import slurmplugins.{module} as program
from slurmplugins.config import paths
paths.SITE, paths.RESUME_FILES = Path({str(self.site)!r}), Path({str(self.resume_files)!r})
paths.LOGS = Path({str(self.state)!r})
from slurmplugins.power_save import hand_on
program._SITE = str(paths.SITE)
go_on = hand_on.go_on
def note(*arguments):
    nodes = go_on(*arguments)
    loaded = "boto3" in sys.modules or "botocore" in sys.modules
    Path({str(self.ours)!r}).write_text(f"{{nodes}} {{loaded}}")
    sys.exit(0)
hand_on.go_on = note
program.main()
"""
        environment = {"SITE": "racks"}
        if self.resume_file.exists():
            environment["SLURM_RESUME_FILE"] = str(self.resume_file)
        return subprocess.Popen([sys.executable, "-I", "-c", setup, *argv], env=environment)

    def own_nodes(self) -> str:
        """Return the nodes that our program works on, once it does."""
        deadline = time.monotonic() + PROGRAM_SECONDS
        while not (self.ours.exists() and self.ours.read_text()):
            assert time.monotonic() < deadline, "our program does not work"
            time.sleep(0.05)
        nodes, _, loaded = self.ours.read_text().rpartition(" ")
        assert loaded == "False"
        return nodes


def ignored_signals():
    """Return the mask of the signals that this process ignores."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"SigIgn:\s*([0-9a-f]+)", status)[1], 16)


@pytest.fixture
def controller(tmp_path):
    return Controller(tmp_path)


def test_the_sites_program_is_called_as_slurmctld_would_have(controller):
    jobs = [{"job_id": 4, "nodes_resume": "gpu-001,rack1"}]
    controller.resume_file.write_text(
        json.dumps({"all_nodes_resume": "gpu-001,rack1", "jobs": jobs})
    )
    process = controller.call("resume", "gpu-001,rack1", "a feature")
    assert process.wait(PROGRAM_SECONDS) == 7
    first, content, ignored, last = controller.noted.read_text().splitlines()
    assert first == f"{controller.program} rack1 a feature"
    assert json.loads(content) == {
        "all_nodes_resume": "rack1",
        "jobs": [{"job_id": 4, "nodes_resume": "rack1"}],
    }
    assert int(ignored.split()[1], 16) == ignored_signals() & ~PYTHONS
    # The very process that slurmctld waits for, and may end.
    assert last == f"pid {process.pid} site racks"
    assert controller.own_nodes() == "gpu-001"


def test_a_call_for_racks_alone_is_nothing_of_ours(controller):
    process = controller.call("suspend", "rack[1-2]")
    assert process.wait(PROGRAM_SECONDS) == 7
    assert controller.noted.read_text().startswith(f"{controller.program} rack[1-2]\n")
    assert not controller.ours.exists()


def test_a_call_for_our_nodes_alone_does_not_reach_the_site(controller):
    process = controller.call("resume", "gpu-[001-003]")
    assert process.wait(PROGRAM_SECONDS) == 0
    assert controller.own_nodes() == "gpu-[001-003]"
    assert not controller.noted.exists()


def test_without_a_program_of_its_own_the_sites_nodes_are_left_alone(controller):
    process = controller.call("resume_fail", "rack1,gpu-002")
    assert process.wait(PROGRAM_SECONDS) == 0
    assert controller.own_nodes() == "gpu-002"


def test_a_program_of_the_site_that_is_gone_does_not_keep_our_nodes_down(controller):
    controller.program.unlink()
    process = controller.call("resume", "rack1,gpu-002")
    assert process.wait(PROGRAM_SECONDS) == 127
    assert controller.own_nodes() == "gpu-002"
    assert "nodes_not_handed_on" in (controller.state / "resume.log").read_text()


def test_old_resume_files_of_the_site_are_removed(controller):
    controller.resume_files.mkdir()
    old = controller.resume_files / "old.json"
    old.write_text("{}")
    os.utime(old, (1, 1))
    controller.resume_file.write_text('{"jobs": []}')
    assert controller.call("resume", "rack1").wait(PROGRAM_SECONDS) == 7
    assert not old.exists()
    assert len(list(controller.resume_files.iterdir())) == 1
