"""Capture what one Slurm version accounts of instances, from a small real cluster on loopback.

It runs where `tests/golden/slurm/capture.py` runs, and uses its cluster:

    cd CHECKOUT && PYTHONPATH=. python3 tests/golden/accounting/capture.py OUTPUT

gpu-001 has one instance, which is powered down, and then another one. One of the jobs is
suspended and resumed. gpu-002 has an instance with a hostile Extra, gpu-003 powers up without an
instance, and gpu-004 is drained while it is powered down. Nothing in the answers is edited.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system.command import SystemRunner
from tests.golden.slurm import capture
from toolkit.accounting import sacct, slurm_instances

FIRST_INSTANCE = capture.INSTANCE
SECOND_INSTANCE, HOSTILE_INSTANCE = "i-0fedcba9876543210", "i-0aaaabbbbccccdddd"
HOSTILE_EXTRA = "a|b\nc"
TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
PAUSE = 15  # longer than the job's sleep, whose clock does not stop
ONLY = "--nodelist=gpu-001"
UNDONE = {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING"}


def has_ended(job: int) -> bool:
    return capture.state(job) not in UNDONE


def is_powered_down() -> bool:
    return "POWERED_DOWN" in capture.run("scontrol", "show", "node", "gpu-001")


def make_history(slurm: ScontrolSlurm) -> dict[str, int]:
    jobs = {"first": capture.submit(ONLY, "--job-name=first", script="sleep 3")}
    folder = Path("/var/log/slurm")
    capture.wait_for("power-up", lambda: list(folder.glob("resume-*.json")))
    daemon = capture.boot_node(slurm)
    capture.wait_for("first job", lambda: has_ended(jobs["first"]))
    jobs["suspended"] = capture.submit(ONLY, "--job-name=suspended", script="sleep 10")
    capture.wait_for("start", lambda: capture.state(jobs["suspended"]) == "RUNNING")
    capture.run("scontrol", "suspend", str(jobs["suspended"]))
    time.sleep(PAUSE)
    capture.run("scontrol", "resume", str(jobs["suspended"]))
    capture.wait_for("suspended job", lambda: has_ended(jobs["suspended"]))
    capture.run("scontrol", "update", "nodename=gpu-001", "state=power_down_force")
    time.sleep(2)
    daemon.terminate()
    capture.wait_for("power-down", is_powered_down)
    time.sleep(2)
    capture.INSTANCE = SECOND_INSTANCE
    jobs["second"] = capture.submit(ONLY, "--job-name=second")
    capture.wait_for("second power-up", lambda: len(list(folder.glob("resume-*.json"))) > 1)
    capture.boot_node(slurm)
    capture.wait_for("second start", lambda: capture.state(jobs["second"]) == "RUNNING")
    return jobs


def make_other_nodes() -> None:
    """Make a hostile Extra, and rows without an instance."""
    for node in ("gpu-002", "gpu-003"):
        capture.run("scontrol", "update", f"nodename={node}", "state=power_up")
    capture.run("scontrol", "update", "nodename=gpu-004", "state=drain", "reason=fan is loud")
    time.sleep(5)
    capture.run("scontrol", "update", "nodename=gpu-002", f"instanceid={HOSTILE_INSTANCE}",
                "instancetype=g5.xlarge", f"extra={HOSTILE_EXTRA}")  # fmt: skip
    time.sleep(10)  # slurmctld tells slurmdbd of a node's instance in its own time


def capture_instances(answers: capture.Answers, now: int) -> None:
    """Capture the toolkit's call, and the same with what it never gives."""
    text = answers.capture("sacctmgr-instance.txt", *slurm_instances.argv("demo", now - 3600))
    (first,) = [line.split("|") for line in text.splitlines() if FIRST_INSTANCE in line]
    start, end = int(first[2]), int(first[3])
    for name, since in {"at-start": start, "behind-start": start + 1}.items():
        answers.capture(f"sacctmgr-instance-{name}.txt", *slurm_instances.argv("demo", since))
    argv = slurm_instances.argv("demo", now - 3600)
    before_end = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(end))
    answers.capture("sacctmgr-instance-end.txt", *argv, f"end={before_end}")
    in_tokyo = ["env", "TZ=Asia/Tokyo", *slurm_instances.argv("demo", start + 1)[3:]]
    answers.capture("sacctmgr-instance-tokyo.txt", *in_tokyo)
    words = ("--parsable", "show", "instance", "start=now-1hour")
    answers.capture("sacctmgr-instance-default.txt", "env", "TZ=UTC", "sacctmgr", *words)


def main() -> None:
    output = Path(sys.argv[1]).resolve()
    output.mkdir(parents=True, exist_ok=True)
    answers = capture.Answers(output)
    version = answers.capture("version.txt", "slurmctld", "-V").split()[-1]
    capture.prepare(".".join(version.split(".")[:2]))
    capture.start_accounting()
    capture.start_controller()
    capture.make_accounts()
    jobs = make_history(ScontrolSlurm(SystemRunner(), "/usr/bin"))
    make_other_nodes()
    now = int(time.time())
    help_text = answers.capture("sacct-helpformat.txt", "sacct", "--helpformat")
    argv = sacct.argv(sacct.fields(help_text), now - 3600, now + 60, TOKEN)
    answers.capture("sacct.txt", *argv)
    elapsed = "--format=JobIDRaw,Start,End,ElapsedRaw,Suspended"
    answers.capture("sacct-elapsed.txt", *argv[:4], "sacct", "-anXP", elapsed)
    capture_instances(answers, now)
    (output / "jobs.json").write_text(json.dumps(jobs, indent=1) + "\n")
    answers.write_calls()


if __name__ == "__main__":
    main()
