"""Command that runs the benchmarks and prints their tables.

python -m tests.bench [NAME ...] [--repeat N] [--limit SECONDS] [--attempts N]
    [--without-peer] [--json FILE] [--into FILE]
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench import (
    caching,
    interruption,
    launching,
    reconciling,
    report,
    scontrol,
    simulated_aws,
    starting,
    submitting,
    tracking,
    usage,
    usage_history,
    workload,
)
from tests.bench.contest import PEER
from tests.bench.workload import Load, Market

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.bench.contest import Figures

LOADS = {
    "1x1000": Load(1, 1000),
    "1x4000": Load(1, 4000),
    "500x8": Load(500, 8),
    "1000x4": Load(1000, 4),
    "500x8-fleet": Load(500, 8, Market("on-demand", ("g5.xlarge", "g5.2xlarge"))),
    "500x8-spot-fleet": Load(500, 8, Market("spot", ("g5.xlarge", "g5.2xlarge"))),
    "140x8-published": Load(140, 8, raised=False),  # a minute at 2/s
}
COMMAND = "python -m tests.bench"
LAUNCHES = "launches"
NODES = 10_000
FRESH = 1_000

AT_ONCE = f"{simulated_aws.RAISED['RunInstances'][0]:,.0f}"
RATE = f"{simulated_aws.RAISED['RunInstances'][1]:.0f}/s"
DNS = f"{simulated_aws.ROUTE53[1]:.0f}/s, {simulated_aws.ROUTE53[0]:.0f} at once"
LATENCY = f"{simulated_aws.AWS_LATENCY * 1000:.0f} ms"
SCONTROL = f"{scontrol.CALL_SECONDS * 1000:.0f} ms"
FED = f"{scontrol.FED_SECONDS * 1000:.0f} ms"
CONFIGURED, DEFAULT = workload.TOLD_TIMEOUT, workload.DEFAULT_TIMEOUT
TOLD = f"""\
"toolkit" alone is told: `aws.instance_rate` {AT_ONCE} at once and {RATE}, which is what EC2 gives
here, and `resume_timeout` {CONFIGURED}. "toolkit, defaults" is told neither: no rate, and
{DEFAULT} s. The peer has no such settings: its own are its defaults, and in "DNS off"
its DisableManagedDns. Fleets have no published rate of instances, so there is nothing to tell."""

HEAD = f"""\
{PEER} from PyPI, its own ResumeProgram, and this toolkit's
resume, each alone against the same local cloud over HTTP. Not real AWS.
EC2 refuses calls at its published rates (RunInstances: 5 at once, 2/s; CreateFleet: 50, 5/s).
Instances a second of RunInstances are raised from the default 2/s to {RATE} for both, as for an
account that runs 4,000 nodes, but where a load says otherwise. The floor is what that rate alone
takes, whoever asks: {AT_ONCE} instances at once, and then {RATE}.
{TOLD}
Every AWS call takes {LATENCY} more than the fake needs. Stubs, the same for both: scontrol
({SCONTROL} a call, {FED} more for each command on its standard input). Stubs only the peer asks:
DynamoDB (never refuses), Route 53 (refuses above its published {DNS}), sudo.
Left out of ours: the copy of the resume file and the fork, which `start` measures.
CPU and peak are the program's own, without scontrol's. Medians; counts are the last run's."""

Contestant = tuple[str, "Callable[[Load, float], Figures]"]


def contestants(load: Load) -> tuple[list[Contestant], list[Contestant]]:
    """Return our contestants, and the peer's.

    Each is a program in one set-up.
    """
    at_defaults = ("toolkit, defaults", partial(launching.ours, told=False))
    tells = load.raised and not load.market.fleet  # its rate is not the published one
    ours: list[Contestant] = [("toolkit", launching.ours)] if tells else []
    without = ("parallelcluster, DNS off", partial(launching.peer, dns=False))
    peers: list[Contestant] = [] if load.market.fleet else [("parallelcluster", launching.peer)]
    return [*ours, at_defaults], [*peers, without]


def launch(name: str, options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    load, sides = LOADS[name], contestants(LOADS[name])
    ours = {label for label, _ in sides[0]}
    runs: dict[str, list[Figures]] = {label: [] for side in sides for label, _ in side}
    for _ in range(options.repeat):  # in turns, so that other load of the host falls on all
        for label, run in (*sides[0], *sides[1]):
            runs[label].append(run(load, options.limit))
    for label, group in runs.items():
        for one in group:
            if (one.short and label in ours) or one.instances > load.nodes:
                raise SystemExit(f"{label}: {one.instances} instances for {load.nodes} nodes")
    say(launched(load, {label: runs[label] for label, _ in sides[0]},
                 {label: runs[label] for label, _ in sides[1]}))  # fmt: skip
    return {label: [asdict(one) for one in group] for label, group in runs.items()}


def launched(
    load: Load, ours: Mapping[str, list[Figures]], peers: Mapping[str, list[Figures]]
) -> str:
    """Return a load's two tables: figures of each, and ratios.

    The ratios are our wall time over the peer's.
    """
    floor = launching.floor(load)
    lines = [
        report.row(f"{label}{_times(runs)}", runs, floor)
        for label, runs in (*ours.items(), *peers.items())
    ]
    why = f"{floor:.1f} s" if floor else "0 s: the bucket is enough"
    if load.market.fleet:
        why = "none is published for instances of fleets"
    ratios = report.table(("wall time over", *peers), report.ratios(ours, peers))
    return f"\n### {load}\n\nFloor: {why}.\n\n{report.table(report.COLUMNS, lines)}\n\n{ratios}"


def _times(runs: list[Figures]) -> str:
    return f" ({len(runs)} run{'s' * (len(runs) > 1)})"


def hop(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    hops = [launching.hop(options.limit)[0] for _ in range(max(3, options.repeat))]
    peer = launching.peer(Load(1, 8), options.limit, capacity=False)
    middle = statistics.median(hops)
    say("\nFirst offering without capacity: from EC2's answer to asking for the next\n")
    what = f"none: nodes set down after {peer.wall:.1f} s, the next try is Slurm's requeue"
    rows = [["toolkit", f"{middle:.2f} s (median of {len(hops)})"], ["parallelcluster", what]]
    say(report.table(("", "hop"), rows))
    return {"ours": hops, "peer_gives_up_after": peer.wall}


def start(_options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    found = starting.costs()
    say(f"\nBefore anything is asked of anybody: {starting.REPEATS} runs in turns, 500 jobs x 8\n")
    names = {
        "bare": "bare interpreter, CPU",
        "parsed": "resume: imported, resume file and burst.json parsed, CPU",
        "loaded": "resume: the engine put together, boto3 about to load, CPU",
        "returns": "resume: slurmctld has its process back, wall",
        "peer": "parallelcluster: import alone (with boto3), CPU",
    }
    rows = [
        [label, f"{statistics.median(found[name]):.0f} ms", f"{min(found[name]):.0f} ms"]
        for name, label in names.items()
    ]
    say(report.table(("", "median", "lowest"), rows))
    return dict(found)


def reconcile(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    later = [reconciling.reconcile(NODES, options.limit) for _ in range(options.repeat)]
    first = [reconciling.first_sight(FRESH, options.limit) for _ in range(options.repeat)]
    say(f"\nOne pass of reconcile, {NODES:,} nodes up, through boto3 and scontrol --json\n")
    rows = [
        report.row(f"{NODES:,} instances seen before", later),
        report.row(f"{FRESH:,} instances never seen: writes their ledger", first),
    ]
    say(report.table(report.COLUMNS, rows))
    return {"first": [asdict(one) for one in first], "later": [asdict(one) for one in later]}


def suspend(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    runs = [reconciling.suspend(1000, options.limit) for _ in range(options.repeat)]
    say("\nSuspend of 1,000 nodes, instances ended and their end confirmed\n")
    say(report.table(report.COLUMNS, [report.row("toolkit", runs)]))
    say("(parallelcluster's SuspendProgram ends nothing; its daemon does, within 60 s)")
    return {"ours": [asdict(one) for one in runs]}


def cache(_options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    columns = ("", "wall s", "CPU s", "MB/s", "toolkit / this", "its CPU / this")
    for source, shape in caching.CASES:
        took = caching.fills(source, shape)
        found[f"{source}, {shape.name}"] = {way: asdict(one) for way, one in took.items()}
        say(f"\n{shape.name}, {source}, into a cache: medians of {caching.REPEATS}, in turns\n")
        rows = [
            [
                way,
                f"{one.wall:.2f}",
                f"{one.cpu:.2f}",
                f"{shape.total / one.wall / 1e6:,.0f}",
                f"{one.ratio:.2f}",
                f"{one.cpu_ratio:.2f}",
            ]
            for way, one in took.items()
        ]
        say(report.table(columns, rows))
    return found


def checkpoints(
    _options: argparse.Namespace, say: Callable[[str], None], *size: str
) -> dict[str, Any]:
    """Measure saving and loading in a process of its own.

    `size` has MIB and ROUNDS, where they differ from the defaults.
    """
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "tests.bench.checkpoints", f"{folder}/run", *size]
        done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    *table, last = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(last)
    say(f"\nA checkpoint of {found['mib']} MiB on one rank: medians of {found['rounds']} rounds\n")
    say(f"The state is on: {found['device']}.")
    say("Seconds; ratios to bare dcp.save, which fsyncs as ours does, to bare dcp.load, and of")
    say("stalls to dcp.async_save with a stager that keeps its memory;")
    say("what hashes add is a part of the row without them.\n")
    say("\n".join(table))
    return found


def requeue(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    runs = interruption.measure(options.cluster, max(options.repeat, interruption.REPEATS))
    found = interruption.medians(runs)
    say(
        f"\nA spot notice to a job of two nodes on the cluster that is up: medians of {len(runs)}\n"
    )
    rows = [
        ["notice to stop request (node agent)", f"{found['asked']} s"],
        ["notice to committed checkpoint", f"{found['saved']} s"],
        ["notice to the job's exit", f"{found['ended']} s"],
        ["exit to the next start; aim 30 s, of which Slurm's own hold is 11", f"{found['dead']} s"],
        ["notice to training again", f"{found['trains']} s"],
    ]
    say(report.table(("", "time"), rows))
    return {"medians": found, "runs": [asdict(run) for run in runs]}


def runs(_options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    found = tracking.rates()
    say(f"\nMLflow with owners and without, on SQLite: medians of {tracking.ROUNDS} rounds\n")
    columns = ("requests a second", tracking.OURS, tracking.PLAIN, "toolkit / plain")
    rows = [
        [kind, *(f"{by[one]:.0f}" for one in (tracking.OURS, tracking.PLAIN)),
         f"{by[tracking.OURS] / by[tracking.PLAIN]:.2f}"]
        for kind, by in found.items()
    ]  # fmt: skip
    say(report.table(columns, rows))
    return dict(found)


def usage_table(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    limit = max(options.limit, usage.LIMIT)
    found = usage.measure(options.attempts, limit, with_peer=not options.without_peer)
    if not options.without_peer:
        found += usage.measure_commands(limit, nodes=options.nodes)
    say(f"\n{options.attempts:,} attempts of a generated dump; CPU and peak of each process\n")
    peer_cpu = next((run.cpu for run in found if run.what == usage.PEER), None)
    rows = [
        [
            run.what,
            f"{run.wall:.2f}",
            f"{run.cpu:.2f}",
            f"{run.step_cpu:.2f}",
            f"{run.peak_mb:,.0f}",
            "" if not peer_cpu or run.what == usage.PEER else f"{run.cpu / peer_cpu:.3f}",
        ]
        for run in found
    ]
    columns = ("", "wall s", "CPU s", "of it behind the start", "peak MB", "CPU over slurm2sql's")
    say(report.table(columns, rows))
    return {run.what: asdict(run) for run in found}


def submit(_options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    found = {accounts: submitting.costs(accounts) for accounts in (10, 1000)}
    say(f"\nThe line at submit, aim 5 ms: {submitting.REPEATS} runs in turns, wall\n")
    rows = []
    for accounts, taken in found.items():
        bare, line = (statistics.median(taken[name]) for name in ("bare", "line"))
        rows.append([f"{accounts:,}", *(f"{ms:.1f} ms" for ms in (bare, line, line - bare))])
    columns = ("accounts with a budget", "Lua alone", "with cli_filter.lua", "the line")
    say(report.table(columns, rows))
    return {str(accounts): taken for accounts, taken in found.items()}


def start_on_head(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    python, found = starting.on_head(options.cluster)
    say(f"\nThe same on the head node that is up, with its Python {python}: 500 jobs x 8, CPU\n")
    rows = [
        [name, f"{statistics.median(found[key]):.0f} ms", f"{min(found[key]):.0f} ms"]
        for key, name in (
            ("bare", "bare interpreter"),
            ("parsed", "resume: imported, resume file and burst.json parsed"),
            ("loaded", "resume: the engine put together, boto3 about to load"),
        )
    ]
    say(report.table(("", "median", "lowest"), rows))
    return {"python": python, **found}


OTHERS: dict[str, Callable[[argparse.Namespace, Callable[[str], None]], dict[str, Any]]] = {
    "hop": hop,
    "start": start,
    "reconcile": reconcile,
    "suspend": suspend,
    "cache": cache,
    "checkpoints": checkpoints,
    "tracking": runs,
    "usage": usage_table,
    "submit": submit,
    "requeue": requeue,
    "start-on-head": start_on_head,
}
ON_CLUSTER = frozenset(
    {"requeue", "start-on-head"}
)  # run only if they are named: a cluster must be up
EVERY = (*LOADS, *OTHERS)
"""`launches` stands for all loads."""

EXAMPLE = Path("examples/local.yaml")


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join((LAUNCHES, *EVERY)))
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; medians are shown")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds a run may take")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--attempts", type=int, default=usage.ATTEMPTS, help="of usage; 10000000")
    parser.add_argument("--nodes", type=int, default=usage_history.NODES, help="of usage's cluster")
    parser.add_argument("--without-peer", action="store_true", help="usage alone, no slurm2sql")
    parser.add_argument("--cluster", type=Path, default=EXAMPLE, help="a cluster that is up")
    parser.add_argument("--into", type=Path, help="put what is printed between the file's marks")
    options = parser.parse_args(arguments)
    names = options.names or [name for name in EVERY if name not in ON_CLUSTER]
    options.names = [name for item in names for name in (LOADS if item == LAUNCHES else [item])]
    unknown = set(options.names) - {*EVERY}
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = parsed(sys.argv[1:])
    printed: list[str] = []

    def say(text: str) -> None:
        printed.append(text)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    say(f"Printed by `{COMMAND} {shlex.join(sys.argv[1:])}`.\n\n{HEAD}\n{report.machine()}")
    found = {}
    for name in options.names:
        found[name] = launch(name, options, say) if name in LOADS else OTHERS[name](options, say)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
        if options.into:
            document = report.replaced(options.into.read_text(), "\n".join(printed))
            options.into.write_text(document)


if __name__ == "__main__":
    main()
