"""Golden tests of the printed answers of `toolkit why`.

The real engine runs on fakes, and the head node reports its facts. `TOOLKIT_GOLDEN=write` accepts a
change; read the diff.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from slurmplugins import head_report
from slurmplugins.head import collect, job_history, report
from slurmplugins.head.report import AttemptReport, HeadReport, JobReport
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.run import run_pass
from slurmplugins.system import decision_log
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench
from tests.fakes.slurm import FakeNodeReader
from toolkit.commands import why
from toolkit.explain import job, node, tables
from toolkit.output import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmplugins.model.node import JobId
    from slurmplugins.slurm.node_reader import NodeReader

HERE = Path(__file__).parent / "expected"
G = hostlist.expand("gpu-[001-008]")


class Jobs:
    """squeue and sacct of the fake slurmctld."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def jobs(self, _job: int | None = None) -> tuple[JobReport, ...]:
        now = self._bench.clock.now()
        return tuple(
            JobReport(
                number,
                "train",
                "ada",
                "vision",
                "spot",
                (item.state,),
                self._reason(number),
                item.nodes,
                len(item.nodes) or item.size,
                item.restarts,
                submitted_at=now - 300,
                eligible_at=now + 10 if item.state == "PENDING" else None,
                started_at=now - 240 if item.state == "RUNNING" else None,
                admin_comment=item.comment,
            )
            for number, item in self._bench.slurm.queue.items()
        )

    def attempts(self, name: JobId) -> tuple[AttemptReport, ...]:
        """Return one failed attempt for each restart.

        Each covers the nodes and the time of all golden cases.
        """
        restarts = self._bench.slurm.queue[name.number].restarts
        now = self._bench.clock.now()
        return (AttemptReport("NODE_FAIL", "0:0", "gpu-[001-002]", now - 3600, now),) * restarts

    def _reason(self, number: int) -> str:
        item = self._bench.slurm.queue[number]
        if item.held:
            return "JobHeldAdmin"
        return "BeginTime" if item.state == "PENDING" else "None"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def read_report(bench: Bench, *question: str) -> HeadReport:
    """Return the head node's facts as a person's command gets them.

    They go through the real decision log and JSON.
    """
    path = bench.engine.state / "decisions.jsonl"
    record = decision_log.copying_writer(path, lambda _line: None)
    for line in bench.lines:
        record(line)
    jobs: job_history.JobReader = Jobs(bench)  # type: ignore[assignment]
    nodes: NodeReader = FakeNodeReader(bench.slurm)  # type: ignore[assignment]
    facts = collect.gather(bench.engine, nodes, jobs, head_report.parse(list(question)), path)
    return report.from_json(json.loads(json.dumps(report.to_json(facts))))


def compare(name: str, text: str) -> None:
    path = HERE / f"{name}.txt"
    if os.environ.get("TOOLKIT_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name} changed"


def no_capacity(bench: Bench) -> None:
    """Start a job of two nodes.

    None of the three offerings has capacity for both.
    """
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 1, ON_DEMAND: 0}
    resume(bench.engine, [bench.slurm.start(7, G[:2])])


def no_quota(bench: Bench) -> None:
    """Start a job for which every quota is used up.

    The job is held.
    """
    code = "VcpuLimitExceeded"
    bench.cloud.refusals = {SPOT_A: "MaxSpotInstanceCountExceeded", SPOT_B: code, ON_DEMAND: code}
    resume(bench.engine, [bench.slurm.start(7, G[:2])])


def never_registered(bench: Bench, nodes: int = 1) -> None:
    """Start a job whose slurmd never registers.

    Its instances run, and slurmctld and reconcile do their usual work.
    """
    bench.cloud.consoles = {
        f"i-{number:017x}": "[    3.1] systemd[1]: Started slurm-node-boot.\n"
        "[   33.8] slurm-node-boot: BootError: can't mount /shared: Connection timed out\n"
        for number in range(1, nodes + 1)
    }
    resume(bench.engine, [bench.slurm.start(7, G[:nodes])])
    for _ in range(16):
        bench.clock.advance(15)
        bench.slurm.tick()
        failed, bench.slurm.resume_failed = bench.slurm.resume_failed, []
        if failed:
            suspend(bench.engine, failed, EndCause.BOOT_FAILED)
        run_pass(bench.engine)


def five_never_registered(bench: Bench) -> None:
    """Let five nodes never register, then start another job.

    The pool is in protected mode by then.
    """
    never_registered(bench, 5)
    resume(bench.engine, [bench.slurm.start(8, G[5:6])])


def interrupted(bench: Bench) -> None:
    """Interrupt one of the two instances of a running job.

    The other still runs.
    """
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    bench.clock.advance(600)
    bench.boot()
    bench.cloud.interrupt(bench.cloud.live()[0].id)
    bench.clock.advance(30)
    run_pass(bench.engine)


@pytest.mark.parametrize("fail", [no_capacity, no_quota, five_never_registered, interrupted])
def test_why_of_a_job_prints_as_reviewed(
    bench: Bench, capsys: pytest.CaptureFixture[str], fail: Callable[[Bench], None]
):
    fail(bench)
    number = max(bench.slurm.queue)
    why._print(job.explain(read_report(bench, "job", str(number)), number), log=False)
    compare(f"job-{fail.__name__}".replace("_", "-"), capsys.readouterr().out)


@pytest.mark.parametrize(
    "fail", [no_capacity, no_quota, never_registered, five_never_registered, interrupted]
)
def test_why_of_a_node_prints_as_reviewed(
    bench: Bench, capsys: pytest.CaptureFixture[str], fail: Callable[[Bench], None]
):
    fail(bench)
    why._print(node.explain(read_report(bench, "node", G[0]), G[0]), log=False)
    compare(f"node-{fail.__name__}".replace("_", "-"), capsys.readouterr().out)


def test_nodes_and_jobs_print_as_reviewed(bench: Bench, capsys: pytest.CaptureFixture[str]):
    bench.cloud.capacity = {SPOT_A: 3}
    job_requests = [bench.slurm.start(7, G[:2]), bench.slurm.start(8, G[2:4])]
    resume(bench.engine, job_requests)
    bench.clock.advance(3700)
    bench.boot()
    bench.cloud.impair(bench.cloud.live()[0].id)
    facts = read_report(bench)
    click.echo(table(tables.NODE_HEADERS, tables.node_cells(tables.node_rows(facts))))
    click.echo(table(tables.JOB_HEADERS, tables.job_cells(tables.job_rows(facts))))
    compare("tables", capsys.readouterr().out)
