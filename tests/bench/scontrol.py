"""scontrol and squeue for the contestants: same answers, same price, every call logged.

A call costs 10 ms, as one against an idle slurmctld does; a command fed on standard input costs
1 ms more each, as it is a request of its own.
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CALL_SECONDS = 0.01
FED_SECONDS = 0.001

_SCRIPT = """#!/bin/sh
here={root}
fed=0
if [ $# -eq 0 ]; then fed=$(wc -l); fi
echo "$1 $2 fed=$fed" | cut -c1-80 >> "$here/calls.log"
sleep $(awk "BEGIN {{print {call} + $fed * {each}}}")
case "$*" in
  *"show job"*|*squeue*) cat "$here/jobs.json" ;;
  "show node"*--json*) cat "$here/nodes.json" ;;
  "show node"*) cat "$here/nodes.txt" ;;
esac
exit 0
"""

_SUDO = '#!/bin/sh\nexec "$@"\n'
_SQUEUE = '#!/bin/sh\necho "squeue" >> {root}/calls.log\nsleep {call}\ncat {root}/jobs.json\n'


@dataclass(frozen=True)
class Stub:
    """The directory with the programs, and what they were asked."""

    root: Path

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    def calls(self) -> int:
        log = self.root / "calls.log"
        return len(log.read_text().splitlines()) if log.exists() else 0


def write(root: Path, nodes: Sequence[str], state: Sequence[str]) -> Stub:
    """Programs that say that these nodes are all in this state."""
    stub = Stub(root)
    stub.bin.mkdir(parents=True)
    records = [node_record(name, state) for name in nodes]
    (root / "nodes.json").write_text(json.dumps({"nodes": records, "errors": [], "warnings": []}))
    (root / "nodes.txt").write_text("".join(_text(name, state) for name in nodes))
    (root / "jobs.json").write_text(json.dumps({"jobs": [], "errors": [], "warnings": []}))
    values = {"root": root, "call": CALL_SECONDS, "each": FED_SECONDS}
    for name, text in {"scontrol": _SCRIPT, "sudo": _SUDO, "squeue": _SQUEUE}.items():
        program = stub.bin / name
        program.write_text(text if name == "sudo" else text.format(**values))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return stub


def _text(name: str, state: Sequence[str]) -> str:
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=2\n"
        f"   CPUAlloc=4 CPUEfctv=4 CPUTot=4 CPULoad=0.00\n"
        f"   NodeAddr={name} NodeHostName={name}\n"
        f"   State={'+'.join(state)} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A\n"
        f"   Partitions=spot\n   SlurmdStartTime=None LastBusyTime=Unknown\n\n"
    )


def _number(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


def node_record(name: str, state: Sequence[str]) -> dict[str, object]:
    """One node as 24.11 prints it, every key it has: parsing them is part of the price."""
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
