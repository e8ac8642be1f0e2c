"""Stubs of scontrol and squeue, the same for all contestants.

Every call is logged. It takes 10 ms, as a call of an idle slurmctld does. A command on standard
input takes 1 ms more, since it is a request of its own. Called for a job, a node's jobs or a list
of nodes, the stubs print those records alone, and refuse unknown names. A bracketed hostlist stands
for all nodes, as the contestants use it.
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    Record = dict[str, object]

CALL_SECONDS = 0.01
FED_SECONDS = 0.001

_SCRIPT = """#!/bin/sh
here={root}
fed=0
if [ $# -eq 0 ]; then fed=$(wc -l); fi
echo "$1 $2 fed=$fed" | cut -c1-80 >> "$here/calls.log"
sleep $(awk "BEGIN {{print {call} + $fed * {each}}}")
pick() {{
  awk -f "$here/pick.awk" -v kind="$1" -v asked="$2" -v needed=1 "$here/$1.tsv" && exit 0
}}
case "$*" in
  "show jobs"*) cat "$here/jobs.json" ;;
  "show job "*)
    pick jobs "$3"
    echo "slurm_load_jobs error: Invalid job id specified" >&2
    exit 1 ;;
  "show nodes --json"|"show nodes "*"["*--json) cat "$here/nodes.json" ;;
  "show nodes "*--json)
    pick nodes "$3"
    echo "Node $3 not found" >&2
    exit 1 ;;
  "show node"*) cat "$here/nodes.txt" ;;
esac
exit 0
"""
_PICK = """\
BEGIN { FS = "\\t"; split(asked, keys, ","); for (at in keys) wanted[keys[at]] }
$1 in wanted { found = found comma $2; comma = "," }
END {
  if (needed && !comma) exit 1
  print "{\\"" kind "\\": [" found "], \\"errors\\": [], \\"warnings\\": []}"
}
"""

_SUDO = '#!/bin/sh\nexec "$@"\n'
_SQUEUE = """#!/bin/sh
here={root}
echo "squeue" >> "$here/calls.log"
sleep {call}
case "$2" in
  --nodelist=*) awk -f "$here/pick.awk" -v kind=jobs -v asked="${{2#*=}}" "$here/on.tsv" ;;
  *) cat "$here/jobs.json" ;;
esac
"""


@dataclass(frozen=True)
class Stub:
    """The directory with the stubs, and the log of their calls."""

    root: Path

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    def calls(self) -> int:
        log = self.root / "calls.log"
        return len(log.read_text().splitlines()) if log.exists() else 0


def write(
    root: Path, nodes: Sequence[str], state: Sequence[str], jobs: Mapping[int, Sequence[str]]
) -> Stub:
    """Write stubs for nodes in one state, and for their jobs."""
    stub = Stub(root)
    stub.bin.mkdir(parents=True)
    nodes_by_name = {name: node_record(name, state) for name in nodes}
    queue = {str(number): job_record(number, on) for number, on in jobs.items()}
    (root / "nodes.json").write_text(_envelope("nodes", nodes_by_name.values()))
    (root / "nodes.tsv").write_text(_table(nodes_by_name.items()))
    (root / "nodes.txt").write_text("".join(_text(name, state) for name in nodes))
    (root / "jobs.json").write_text(_envelope("jobs", queue.values()))
    (root / "jobs.tsv").write_text(_table(queue.items()))
    on = [(name, queue[str(number)]) for number, names in jobs.items() for name in names]
    (root / "on.tsv").write_text(_table(on))
    (root / "pick.awk").write_text(_PICK)
    values = {"root": root, "call": CALL_SECONDS, "each": FED_SECONDS}
    for name, text in {"scontrol": _SCRIPT, "sudo": _SUDO, "squeue": _SQUEUE}.items():
        program = stub.bin / name
        program.write_text(text if name == "sudo" else text.format(**values))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return stub


def _envelope(kind: str, records: Iterable[Record]) -> str:
    dated = {"last_update": {"set": True, "number": 1}, "errors": [], "warnings": []}
    return json.dumps({kind: list(records), **dated})


def _table(records: Iterable[tuple[str, Record]]) -> str:
    """Return one line for each record, after its key."""
    return "".join(f"{key}\t{json.dumps(record)}\n" for key, record in records)


def _text(name: str, state: Sequence[str]) -> str:
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=2\n"
        f"   CPUAlloc=4 CPUEfctv=4 CPUTot=4 CPULoad=0.00\n"
        f"   NodeAddr={name} NodeHostName={name}\n"
        f"   State={'+'.join(state)} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A\n"
        f"   Partitions=spot\n   SlurmdStartTime=None LastBusyTime=Unknown\n\n"
    )


def job_record(number: int, nodes: Sequence[str]) -> Record:
    """Return a job that waits for its nodes.

    It has the keys of 24.11 that either contestant may read.
    """
    return {
        "account": "vision", "admin_comment": "", "array_job_id": _number(0),
        "array_task_id": {**_number(0), "set": False}, "array_task_string": "",
        "batch_flag": True, "comment": "", "eligible_time": _number(1_795_000_000),
        "end_time": _number(1_795_086_400), "exit_code": {"status": ["SUCCESS"],
        "return_code": _number(0), "signal": {"id": {**_number(0), "set": False}, "name": ""}},
        "hold": False, "job_id": number, "job_state": ["RUNNING", "CONFIGURING"],
        "name": "train", "node_count": _number(len(nodes)), "nodes": ",".join(nodes),
        "partition": "spot", "requeue": True, "restart_cnt": 0,
        "start_time": _number(1_795_000_000), "state_reason": "None",
        "submit_time": _number(1_795_000_000), "user_name": "ada",
    }  # fmt: skip


def _number(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


def node_record(name: str, state: Sequence[str]) -> Record:
    """Return one node with every key that 24.11 prints.

    Parsing them is part of the cost.
    """
    energy = {
        "average_watts": 0, "base_consumed_energy": 0, "consumed_energy": 0,
        "current_watts": _number(0), "previous_consumed_energy": 0, "last_collected": 0,
    }  # fmt: skip
    return {
        "architecture": "x86_64", "burstbuffer_network_address": "", "boards": 1,
        "boot_time": _number(1_795_000_000), "cluster_name": "", "cores": 2,
        "specialized_cores": 0, "cpu_binding": 0, "cpu_load": 0, "free_mem": _number(15_000),
        "cpus": 4, "effective_cpus": 4, "specialized_cpus": "", "energy": energy,
        "external_sensors": {}, "extra": "", "power": {}, "features": ["cloud", "gpu"],
        "active_features": ["cloud", "gpu"], "gpu_spec": "", "gres": "gpu:a10g:1",
        "gres_drained": "N/A", "gres_used": "gpu:a10g:0", "instance_id": "",
        "instance_type": "", "last_busy": _number(1_795_000_000), "mcs_label": "",
        "specialized_memory": 0, "name": name, "next_state_after_reboot": ["INVALID"],
        "address": name, "hostname": name, "state": list(state),
        "operating_system": "Linux 6.12.48+deb13-amd64 #1 SMP PREEMPT_DYNAMIC", "owner": "",
        "partitions": ["spot"], "port": 6818, "real_memory": 15_360,
        "res_cores_per_gpu": 0, "comment": "", "reason": "", "reason_changed_at": _number(0),
        "reason_set_by_user": "", "resume_after": _number(0), "reservation": "",
        "alloc_memory": 0, "alloc_cpus": 0, "alloc_idle_cpus": 4, "tls_cert_last_renewal": {},
        "tres": "cpu=4,mem=15G,billing=4,gres/gpu=1", "tres_used": "", "tres_weighted": 0.0,
        "slurmd_start_time": _number(1_795_000_010), "sockets": 1, "threads": 2,
        "temporary_disk": 0, "weight": 1, "topology": "", "version": "24.11.5",
    }  # fmt: skip
