"""A slurmctld on loopback that both readers of nodes are asked about, in a tree of `tree.py`.

python3 -m tests.contract.pyslurm.tree compare           each situation, as both readers see it
python3 -m tests.contract.pyslurm.tree measure COUNT...  seconds by reader and number of nodes
python3 -m tests.contract.pyslurm.tree silent            seconds until each reader gives up
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from slurmplugins.errors import SlurmError
from slurmplugins.model.instance import Assignment
from slurmplugins.slurm.node_reader import NodeReader
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system.command import SystemRunner
from toolkit.slurm_nodes import parse_node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurmplugins.model.node import Node

HEAD, ADDRESS = "demo-head", "10.42.1.10"
ETC, STATE, LOGS = Path("/etc/slurm"), Path("/srv/slurmctld"), Path("/var/log/slurm")
PATIENCE = 60.0
ROUNDS = 10
CLOUD_NODES = 5000
CONF = """ClusterName=demo
SlurmctldHost={head}({address})
SlurmUser=slurm
AuthType=auth/slurm
CredType=cred/slurm
StateSaveLocation={state}
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmdParameters=config_overrides
SlurmctldParameters=cloud_dns
ReturnToService=2
GresTypes=gpu
SelectType=select/cons_tres
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SuspendProgram=/bin/true
ResumeProgram=/bin/true
ResumeTimeout=1800
SuspendTime=1800
SuspendTimeout=1800
NodeName=DEFAULT CPUs=4 RealMemory=500
NodeName=real-001 NodeAddr=127.0.0.1
NodeName=gpu-[001-020] Gres=gpu:a10g:1 State=CLOUD
NodeName=n-[0001-{count:04}] CPUs=96 RealMemory=1900000 Gres=gpu:h100:8 Feature=efa State=CLOUD
PartitionName=main Nodes=ALL Default=YES
PartitionName=any Nodes=ALL
"""
SCONTROL = ("/usr/bin/scontrol", "show", "nodes", "--json")
HEAD_NODES = ("python3", "-P", "-m", "slurmplugins.head_nodes")
AS_SLURM = ("runuser", "-u", "slurm", "--", "env", f"PYTHONPATH={Path.cwd()}")
READERS: tuple[type[NodeReader | ScontrolSlurm], ...] = (ScontrolSlurm, NodeReader)
ASK = """
from slurmplugins.slurm.node_reader import NodeReader
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system.command import SystemRunner
assert len({}(SystemRunner(), "/usr/bin").nodes()) > 20
"""


def run(*argv: str | bytes) -> str:
    done = subprocess.run(argv, capture_output=True, check=False, timeout=120)
    if done.returncode:
        sys.exit(f"{argv!r} failed: {done.stdout!r}{done.stderr!r}")
    return done.stdout.decode(errors="replace")


def wait_for(command: tuple[str, ...], text: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while text not in subprocess.run(command, capture_output=True, text=True, check=False).stdout:
        if time.monotonic() > deadline:
            logs = [path.read_text(errors="replace")[-1500:] for path in LOGS.glob("*.log")]
            sys.exit(f"no {text!r} of {command} within {PATIENCE:.0f} s: {''.join(logs)}")
        time.sleep(0.2)


def prepare() -> None:
    """Make address, user, folders and key."""
    run("hostname", HEAD)
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    hosts = Path("/run/hosts")
    hosts.write_text(f"127.0.0.1 localhost real-001\n{ADDRESS} {HEAD}\n")
    run("mount", "--bind", str(hosts), "/etc/hosts")
    subprocess.run(("useradd", "--system", "slurm"), capture_output=True, check=False)
    for name in ("/run/slurmctld", "/var/log/slurm", "/var/lib/slurm/slurmd"):
        Path(name).mkdir(parents=True)
        shutil.chown(name, "slurm", "slurm")
    (ETC / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    key = ETC / "slurm.key"
    key.write_bytes(os.urandom(1024))
    shutil.chown(key, "slurm", "slurm")
    key.chmod(0o600)


def start_controller(count: int) -> subprocess.Popen[bytes]:
    """Start slurmctld anew, with this number of nodes of the large pool."""
    shutil.rmtree(STATE, ignore_errors=True)
    STATE.mkdir()
    shutil.chown(STATE, "slurm", "slurm")
    text = CONF.format(head=HEAD, address=ADDRESS, state=STATE, count=count)
    (ETC / "slurm.conf").write_text(text)
    argv = ("setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups", "slurmctld", "-D")
    daemon = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(("scontrol", "ping"), "is UP")
    return daemon


def update(node: str, *settings: str | bytes) -> None:
    run("scontrol", "update", f"nodename={node}", *settings)


def start_job(*options: str) -> None:
    argv = ("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 600", *options)
    run(*argv)


def change_nodes() -> None:
    """Bring nodes into many states, as jobs, people and the engine do."""
    slurm = ScontrolSlurm(SystemRunner(), "/usr/bin")
    subprocess.Popen(
        ("slurmd", "-D", "-N", "real-001"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(("sinfo", "-hN", "-n", "real-001", "-o", "%t"), "idle")
    start_job("--nodelist=real-001", "--ntasks=1")
    wait_for(("squeue", "-h", "-o", "%T"), "RUNNING")
    start_job("--nodelist=gpu-001", "--exclusive")
    update("gpu-002", "state=drain", "reason=fan is loud")
    slurm.down(["gpu-003"], "toolkit: no-capacity: none of g5.xlarge")
    slurm.power_up(["gpu-004", "gpu-010", "gpu-012"])
    update("gpu-005", "state=drain", "reason=soon over")
    update("gpu-005", "state=resume")
    run("scontrol", "create", "reservation", "reservationname=now", "users=root", "nodes=gpu-006",
        "starttime=now", "duration=60", "flags=maint,ignore_jobs")  # fmt: skip
    update("gpu-007", "state=fail", "reason=disk")
    update("gpu-008", "state=drain", "reason=Grüße aus 東京")
    update("gpu-009", "state=drain", 'reason=a "quoted" \\ text, with + and ?')
    wait_for(("scontrol", "show", "node", "gpu-010"), "POWERING_UP")
    update("gpu-010", "state=power_down_asap")
    slurm.assign([Assignment("gpu-011", "i-0123456789abcdef0", "10.0.0.9", "g5.xlarge")])
    slurm.down(["gpu-012"], "toolkit: boot-failed")
    slurm.power_down(["gpu-012"])
    wait_for(("scontrol", "show", "node", "gpu-006"), "MAINTENANCE")


def engine_rows(nodes: Iterable[Node]) -> list[object]:
    """Return nodes as the head's report takes them."""
    return [[node.name, sorted(node.flags), node.reason, node.address] for node in nodes]


def status_rows(text: str) -> list[object]:
    """Return nodes as `toolkit status` takes them, and Slurm's release."""
    answer = json.loads(text)
    nodes = map(parse_node, answer["nodes"])
    rows = [[node.name, sorted(node.states), node.reason, node.version] for node in nodes]
    return [*rows, answer["meta"]["slurm"]["release"]]


def situation(name: str, slurm_conf: str = "/etc/slurm/slurm.conf") -> dict[str, object]:
    """Return what both readers say of all nodes while none changes."""
    runner = SystemRunner()
    reader = NodeReader(runner, "/usr/bin", slurm_conf=Path(slurm_conf))
    for _ in range(ROUNDS):
        answer = runner.run(SCONTROL, timeout=60).stdout
        found = {
            "name": name,
            "scontrol": engine_rows(ScontrolSlurm(runner, "/usr/bin").nodes()),
            "reader": engine_rows(reader.nodes()),
            "source": reader.source,
            "scontrol for status": status_rows(answer),
            "reader for status": status_rows(run(*AS_SLURM, *HEAD_NODES)),
        }
        if status_rows(runner.run(SCONTROL, timeout=60).stdout) == found["scontrol for status"]:
            return found
    sys.exit(f"{name}: slurmctld's nodes never stood still")


def compare() -> None:
    start_controller(CLOUD_NODES)
    change_nodes()
    situations = [situation("many states"), situation("no slurm.conf", "/nowhere")]
    run("scontrol", "suspend", "1")
    situations.append(situation("a suspended job"))
    run("scontrol", "resume", "1")
    update("gpu-013", "state=drain", b"reason=caf\xe9")
    situations.append(situation("Latin-1"))
    update("gpu-013", "reason=cafe")
    update("gpu-014", "state=drain", "reason=None")
    situations.append(situation("the text None"))
    update("gpu-014", "reason=ready")
    situations.append(situation("plain again"))
    json.dump(situations, sys.stdout)


def seconds_of(argv: tuple[str, ...]) -> tuple[float, float]:
    """Return the CPU and wall seconds of a command with its children."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - started


def measure(counts: list[int], rounds: int = 5) -> None:
    rows = []
    for count in counts:
        controller = start_controller(count)
        commands: dict[str, tuple[str, ...]] = {
            "python": ("python3", "-c", "pass"),
            "scontrol": SCONTROL,
            "head_nodes": HEAD_NODES,
            **{kind.__name__: ("python3", "-c", ASK.format(kind.__name__)) for kind in READERS},
        }
        for name, argv in commands.items():
            taken = [seconds_of(argv) for _ in range(rounds)]
            output = len(subprocess.run(argv, capture_output=True, check=True).stdout)
            rows.append({"nodes": count, "command": name, "bytes": output,
                         "cpu": round(median(cpu for cpu, _ in taken), 3),
                         "wall": round(median(wall for _, wall in taken), 3)})  # fmt: skip
        controller.terminate()
        controller.wait(timeout=60)
    json.dump({"load": os.getloadavg(), "rows": rows}, sys.stdout)


def silent() -> None:
    controller = start_controller(20)
    for name, number in (("stopped", signal.SIGSTOP), ("away", signal.SIGKILL)):
        controller.send_signal(number)
        for kind in READERS:
            started, message = time.monotonic(), "no error"
            try:
                kind(SystemRunner(), "/usr/bin").nodes()
            except SlurmError as error:
                message = f"{type(error).__name__}: {error}"
            seconds = time.monotonic() - started
            sys.stdout.write(f"{name} {kind.__name__} {seconds:.1f} {message}\n")


def main() -> None:
    prepare()
    match sys.argv[1:]:
        case ["compare"]:
            compare()
        case ["measure", *counts]:
            measure([int(count) for count in counts])
        case ["silent"]:
            silent()
        case _:
            sys.exit(__doc__)
    sys.stdout.flush()
    # The namespace's end stops the daemons.


if __name__ == "__main__":
    main()
