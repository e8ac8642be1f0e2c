"""Capture what pyslurm answers beside scontrol and squeue, about the same moment.

It runs as `capture.py` does, in a tree that has pyslurm as well:

    cd CHECKOUT && PYTHONPATH=. python3 tests/golden/slurm/capture_pyslurm.py OUTPUT

Nodes and jobs are those of `capture.py`, and more in other states.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from pathlib import Path
from typing import Any

from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system.command import SystemRunner
from tests.golden.slurm import capture
from tests.unit.render.render_samples import CPU_POOL, GPU_POOL, PRICES, a_config
from toolkit.render.context import slurm_context
from toolkit.render.slurm import slurm_files

ONLY = "--nodelist=gpu-001"
STUBBORN = "trap '' TERM\nwhile :; do sleep 1; done"
NODE = (
    "name", "state", "reason", "address", "configured_gres", "total_cpus", "real_memory",
    "partitions", "slurm_version", "extra",
)  # fmt: skip
JOB = (
    "id", "name", "user_name", "account", "partition", "state", "state_reason", "priority",
    "allocated_nodes", "num_nodes", "max_nodes", "requeue_count", "submit_time", "eligible_time",
    "start_time", "admin_comment", "comment", "array_id", "array_task_id", "array_tasks_waiting",
    "array_tasks_parallel",
)  # fmt: skip


def write_more_nodes(version: str) -> None:
    pools = {"gpu": {**GPU_POOL, "count": 6}, "cpu": {**CPU_POOL, "count": 2}}
    slurm = {"version": version, "suspend_time": 30, "resume_timeout": 180}
    context = slurm_context(a_config(slurm=slurm, pools=pools), PRICES)
    for name, text in slurm_files(context, capture.CHECKOUT / "templates").items():
        (capture.ETC / name).write_text(text)


def start(job: str, *options: str, script: str) -> int:
    number = capture.submit(ONLY, f"--job-name={job}", *options, script=script)
    capture.wait_for(job, lambda: capture.state(number) == "RUNNING")
    return number


def is_powering_up(node: str) -> bool:
    return "POWERING_UP" in capture.run("scontrol", "show", "node", node)


def make_more_history(slurm: ScontrolSlurm, jobs: dict[str, int]) -> None:
    """Bring nodes and jobs into more states, those that soon pass last."""
    jobs["range"] = capture.submit("--hold", "--nodes=2-4", "--job-name=range")
    dependency = f"--dependency=afterok:{jobs['range']}"
    jobs["dependent"] = capture.submit(dependency, "--job-name=dependent")
    jobs["comment-none"] = capture.submit("--hold", "--job-name=odd", "--comment=None")
    slurm.power_up(["gpu-005", "gpu-006"])
    capture.wait_for("power-up", lambda: is_powering_up("gpu-006"))
    capture.run("scontrol", "create", "reservation", "reservationname=now", "users=root",
                "nodes=cpu-002", "starttime=now", "duration=60",
                "flags=maint,ignore_jobs")  # fmt: skip
    jobs["completing"] = start("completing", script=STUBBORN)
    jobs["requeueing"] = start("requeueing", script=STUBBORN)
    jobs["resources"] = capture.submit(ONLY, "--exclusive", "--job-name=resources")
    capture.run("scontrol", "suspend", str(jobs["requeued"]))
    slurm.down(["gpu-006"], "toolkit: boot-failed")
    slurm.power_down(["gpu-006"])
    capture.run("scancel", str(jobs["completing"]))
    capture.run("scontrol", "requeue", str(jobs["requeueing"]))
    time.sleep(3)


def attributes(kind: type) -> list[str]:
    return sorted(
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and inspect.isdatadescriptor(value)
    )


def rows(items: Any, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{name: getattr(item, name) for name in names} for item in items.values()]


def pyslurm_answers() -> dict[str, Any]:
    import pyslurm  # it reads slurm.conf at once

    return {
        "version": pyslurm.__version__,
        "node_attributes": attributes(pyslurm.Node),
        "job_attributes": attributes(pyslurm.Job),
        "nodes": rows(pyslurm.Nodes.load(), NODE),
        "jobs": rows(pyslurm.Jobs.load(), JOB),
    }


def main() -> None:
    output = Path(sys.argv[1]).resolve()
    output.mkdir(parents=True, exist_ok=True)
    answers = capture.Answers(output)
    release = answers.capture("version.txt", "slurmctld", "-V").split()[-1]
    version = ".".join(release.split(".")[:2])
    capture.prepare(version)
    write_more_nodes(version)
    capture.start_accounting()
    capture.start_controller()
    capture.make_accounts()
    slurm = ScontrolSlurm(SystemRunner(), "/usr/bin")
    jobs = capture.make_history(slurm)
    make_more_history(slurm, jobs)
    text = json.dumps(pyslurm_answers(), indent=1, sort_keys=True)
    (output / "pyslurm.json").write_text(text + "\n")
    answers.capture("scontrol-nodes.json", "scontrol", "show", "nodes", "--json")
    answers.capture("squeue.json", "squeue", "--json")
    (output / "jobs.json").write_text(json.dumps(jobs, indent=1) + "\n")
    answers.write_calls()


if __name__ == "__main__":
    main()
