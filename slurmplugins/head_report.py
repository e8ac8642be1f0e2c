"""Print the head's report for people's commands, as one JSON object.

python3 -m slurmplugins.head_report              Everything that is true now.
python3 -m slurmplugins.head_report job 4711     And decisions about a job, or a task (4711_3).
python3 -m slurmplugins.head_report node gpu-001 And decisions about a node.
python3 -m slurmplugins.head_report pass         Only reconcile's last pass, the pools' states, and
                                                 what is free of the data volume.

It changes nothing and asks each of Slurm and EC2 once. Parts that can't be read are in `unread`.
"""

from __future__ import annotations

import json
import sys
from functools import partial

from slurmplugins.config import paths
from slurmplugins.errors import BadName
from slurmplugins.head.assemble import assemble
from slurmplugins.head.budget_reports import denied_accounts, held_jobs
from slurmplugins.head.burst_reports import burst_reports
from slurmplugins.head.collect import Subject, gather
from slurmplugins.head.free_space import read_free_shares
from slurmplugins.head.job_history import JobReader
from slurmplugins.head.report import to_json
from slurmplugins.model import hostlist
from slurmplugins.model.node import parse_job_id
from slurmplugins.slurm.node_reader import NodeReader
from slurmplugins.slurm.queue import Queue
from slurmplugins.system import program
from slurmplugins.system.command import SystemRunner
from slurmplugins.system.logger import Log, to_stderr


def main() -> None:
    from slurmplugins.system.clock import SystemClock

    # Only standard error: a question must not leave a mark in the logs it reads.
    log = Log(to_stderr, SystemClock(), {"program": "facts"})

    def work() -> None:
        subject = parse(sys.argv[1:])
        engine = assemble(log)
        runner, slurm_bin = SystemRunner(), engine.config.slurm_bin
        jobs, queue = JobReader(runner, slurm_bin), Queue(runner, slurm_bin)
        nodes = NodeReader(runner, slurm_bin, log=log)
        bursts = partial(burst_reports, engine, queue)
        report = gather(
            engine,
            nodes,
            jobs,
            subject,
            paths.DECISIONS,
            bursts=bursts,
            denied=denied_accounts,
            budget_holds=held_jobs,
            data_volume=read_free_shares,
        )
        sys.stdout.write(json.dumps(to_json(report)) + "\n")

    sys.exit(program.run_to_exit_code(log, work))


def parse(arguments: list[str]) -> Subject:
    """Parse the arguments that this module's docstring shows.

    Raises BadName for anything else.
    """
    match arguments:
        case []:
            return Subject()
        case ["pass"]:
            return Subject(state_only=True)
        case ["job", name]:
            job = parse_job_id(name)
            return Subject(job=job.number, task=job.task)
        case ["node", name]:
            return Subject(node=hostlist.parse(name))
    raise BadName(f"unknown arguments: {' '.join(arguments)[:80]!r}")


if __name__ == "__main__":
    main()
