"""Capture the answers of one Slurm version, from a small real cluster on loopback.

It runs as root in a Debian tree with Slurm's daemons and commands, MariaDB and the toolkit's Python
packages. The tree has network, mount, process and host name namespaces of its own:

    cd CHECKOUT && PYTHONPATH=. python3 tests/golden/slurm/capture.py OUTPUT

slurm.conf, the files beside it and slurmdbd.conf are as the toolkit renders them for the version.
Nodes and jobs are changed by `ScontrolSlurm` where it can do that.

OUTPUT then has one file for the standard output of each call, and `calls.json` with its arguments,
exit code and standard error. Nothing in them is edited.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from slurmplugins.model.instance import Assignment
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system.command import SystemRunner
from tests.unit.render.render_samples import PRICES, a_config
from toolkit.accounting import sacct
from toolkit.accounts import current
from toolkit.render.context import slurm_context
from toolkit.render.slurm import slurm_files
from toolkit.render.templates import environment

HEAD, ADDRESS = "demo-head", "10.42.1.10"
INSTANCE = "i-0123456789abcdef0"
SLURM = 64030
USERS = {"ada": 2001, "grace": 2002}
PATIENCE = 240
COMPLAINT = re.compile(r"error:|warning:|fatal:|defunct|deprecated")
CHECKOUT = Path(__file__).parents[3]
INIT_SCRIPT = CHECKOUT / "ansible/roles/slurmctld/files/hooks/slurm-user-scratch"
ETC, PROGRAMS, HOOKS = (
    Path("/etc/slurm"),
    Path("/opt/slurm-toolkit/bin"),
    Path("/shared/.toolkit/hooks"),
)
RESUME = """#!/bin/sh
cp "$SLURM_RESUME_FILE" "/var/log/slurm/resume-$(date +%s%N).json"
"""
REQUEUED_ONCE = """#!/bin/sh
[ "${SLURM_RESTART_COUNT:-0}" != 0 ] || exit 85
sleep 900
"""


@dataclass
class Answers:
    """The folder of one version's answers."""

    folder: Path
    calls: dict[str, dict[str, object]] = field(default_factory=dict)

    def capture(self, name: str, *argv: str, environment: dict[str, str] | None = None) -> str:
        """Run a command and keep its answer; return its standard output."""
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=240,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        # newline="": a job's name has line breaks of its own.
        with (self.folder / name).open("w", encoding="utf-8", newline="") as file:
            file.write(done.stdout)
        self.calls[name] = {"argv": argv, "exit": done.returncode, "stderr": done.stderr}
        return done.stdout

    def write_calls(self) -> None:
        path = self.folder / "calls.json"
        path.write_text(json.dumps(self.calls, indent=1, sort_keys=True) + "\n")


def run(*argv: str, check: bool = True, user: str = "") -> str:
    command = ("runuser", "-u", user, "--", *argv) if user else argv
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if check and done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    return done.stdout


def wait_for(what: str, question) -> None:
    deadline = time.monotonic() + PATIENCE
    while not question():
        if time.monotonic() > deadline:
            sys.exit(f"no {what} within {PATIENCE} s")
        time.sleep(0.5)


def start(*argv: str, user: str = "", log: str) -> subprocess.Popen[bytes]:
    command = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *argv)
    with (Path("/var/log/slurm") / f"{log}.out").open("wb") as output:
        return subprocess.Popen(command if user else argv, stdout=output, stderr=output)


def prepare(version: str) -> None:
    """Make users, keys, folders and stand-ins for the toolkit's programs."""
    for argv in (
        ("hostname", HEAD), ("ip", "link", "set", "lo", "up"),
        ("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"),
    ):  # fmt: skip
        run(*argv)
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} {HEAD}\n127.0.0.1 gpu-001\n")
    for name, uid in {"slurm": SLURM, **USERS}.items():
        if run("id", "-u", name, check=False).strip() != str(uid):
            run("groupadd", "--gid", str(uid), name)
            run("useradd", "--uid", str(uid), "--gid", str(uid), "--create-home", name)
    for folder, owner in {
        "/srv/head/slurmctld": "slurm", "/var/lib/slurm": "root", "/var/log/slurm": "slurm",
        "/run/slurmctld": "slurm", "/run/slurmdbd": "slurm", "/run/slurm": "root",
        "/run/mysqld": "mysql", "/scratch/.users": "root", str(PROGRAMS): "root",
        str(HOOKS): "root",
    }.items():  # fmt: skip
        Path(folder).mkdir(parents=True, exist_ok=True)
        shutil.chown(folder, owner, owner)
    for program in ("suspend", "resume-fail", "prolog"):
        write_program(PROGRAMS / f"slurm-{program}", "#!/bin/sh\n")
    write_program(PROGRAMS / "slurm-resume", RESUME)
    write_program(HOOKS / INIT_SCRIPT.name, INIT_SCRIPT.read_text())
    for hook in ("slurm-job-token", "slurm-task-prolog"):
        write_program(HOOKS / hook, "#!/bin/sh\n")
    write_configuration(version)
    (ETC / "slurm.key").write_bytes(os.urandom(1024))
    for name in ("slurm.key", "slurmdbd.conf"):
        path = ETC / name
        shutil.chown(path, "slurm", "slurm")
        path.chmod(0o600)


def write_configuration(version: str) -> None:
    templates = CHECKOUT / "templates"
    slurm = {"version": version, "suspend_time": 30, "resume_timeout": 180}
    context = slurm_context(a_config(slurm=slurm), PRICES)
    for name, text in slurm_files(context, templates).items():
        (ETC / name).write_text(text)
    accounting = environment(templates / "slurm").get_template("slurmdbd.conf.j2").render(
        ansible_managed="as by Ansible", toolkit_head_hostname=HEAD,
        slurmdbd_database="slurm_acct_db", toolkit_private_data=[],
    )  # fmt: skip
    (ETC / "slurmdbd.conf").write_text(accounting + "\n")


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def start_accounting() -> None:
    run("mariadb-install-db", "--user=mysql", "--datadir=/var/lib/slurm-capture-db")
    database = ("mariadbd", "--no-defaults", "--datadir=/var/lib/slurm-capture-db",
                "--skip-networking",
                "--user=mysql", "--socket=/run/mysqld/mysqld.sock",
                "--loose-innodb-snapshot-isolation=OFF")  # fmt: skip
    start(*database, log="mariadb")
    client = ("mariadb", "--no-defaults", "--socket=/run/mysqld/mysqld.sock")
    wait_for("MariaDB", lambda: run(*client, "-e", "SELECT 'up'", check=False))
    run(*client, "-e", "CREATE USER slurm@localhost IDENTIFIED VIA unix_socket;"
        " GRANT ALL ON slurm_acct_db.* TO slurm@localhost")  # fmt: skip
    daemon = None

    def is_listening() -> bool:
        """Start slurmdbd, also again after it ended, as its unit does."""
        nonlocal daemon
        if daemon is None or daemon.poll() is not None:
            daemon = start("slurmdbd", "-D", user="slurm", log="slurmdbd")
            time.sleep(2)
        return ":6819" in run("ss", "-ltn")

    wait_for("slurmdbd", is_listening)


def start_controller() -> subprocess.Popen[bytes]:
    daemon = start("slurmctld", "-D", user="slurm", log="slurmctld")
    wait_for("slurmctld", lambda: "is UP" in run("scontrol", "ping", check=False))
    return daemon


def make_accounts() -> None:
    for argv in (
        ("add", "account", "vision", "organization=toolkit", "fairshare=60"),
        ("add", "account", "speech", "parent=vision", "organization=toolkit", "fairshare=10"),
        ("add", "account", "handmade"),
        ("add", "user", "ada", "account=vision", "defaultaccount=vision"),
        ("add", "user", "ada", "account=speech"),
        ("add", "user", "grace", "account=handmade"),
    ):
        run("sacctmgr", "-i", *argv)


def submit(*options: str, script: str = "sleep 900", user: str = "ada") -> int:
    """Submit a batch job of a user and return its number."""
    output = "--output=/tmp/job-%j.%x.out"
    text = script if script.startswith("#!") else f"#!/bin/sh\n{script}\n"
    argv = ("runuser", "-u", user, "--", "sbatch", "--parsable", output, *options)
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False, cwd="/tmp")
    if done.returncode:
        sys.exit(f"sbatch {' '.join(options)}: {done.stderr}")
    return int(done.stdout.split(";")[0])


def state(job: int) -> str:
    return run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()


def boot_node(slurm: ScontrolSlurm) -> subprocess.Popen[bytes]:
    """Do for gpu-001 what resume and slurm-node-boot do for a node."""
    slurm.assign([Assignment("gpu-001", INSTANCE, "127.0.0.1", "g5.xlarge")])
    extra = json.dumps({"lifecycle": "spot", "az": "us-east-1a", "price": "0.4024"})
    argv = ("slurmd", "-D", "-b", "-N", "gpu-001", "--conf-server", f"{ADDRESS}:6817")
    words = ("--instance-id", INSTANCE, "--instance-type", "g5.xlarge", "--extra", extra)
    return start(*argv, *words, log="slurmd")


def make_history(slurm: ScontrolSlurm) -> dict[str, int]:
    """Bring nodes and jobs into every state that the toolkit tells apart."""
    only = "--nodelist=gpu-001"
    requeued = submit(only, "--job-name=evil|a\nb", "--comment=for the paper", script=REQUEUED_ONCE)
    wait_for("power-up", lambda: list(Path("/var/log/slurm").glob("resume-*.json")))
    boot_node(slurm)
    wait_for("requeue", lambda: state(requeued) == "RUNNING" and has_restarted(requeued))
    slurm.comment(requeued, "toolkit: gpu-001: interrupted")
    jobs = {"requeued": requeued}
    for name, script in {"failed": "exit 7", "killed": "kill -9 $$", "code-137": "exit 137",
                         "done": "true"}.items():  # fmt: skip
        jobs[name] = submit(only, f"--job-name={name}", script=script)
        wait_for(
            name, lambda job=jobs[name]: state(job) not in {"PENDING", "RUNNING", "COMPLETING"}
        )
    jobs["cancelled"] = submit(only, "--job-name=cancelled")
    wait_for("start", lambda: state(jobs["cancelled"]) == "RUNNING")
    run("scancel", str(jobs["cancelled"]))
    jobs["array"] = submit(only, "--job-name=array", "--array=0-3%1")
    wait_for("array task", lambda: "RUNNING" in state(jobs["array"]))
    jobs["held"] = submit("--job-name=held", "--begin=now+1day", user="grace")
    slurm.hold(jobs["held"])
    jobs["het"] = submit("--job-name=het", "--begin=now+1day", ":", "--nodes=2")
    jobs["powering-up"] = submit("--nodelist=gpu-002", "--job-name=powering-up")
    wait_for("second power-up", lambda: len(list(Path("/var/log/slurm").glob("resume-*.json"))) > 1)
    run("scontrol", "update", "nodename=gpu-003", "state=drain", "reason=fan is loud")
    slurm.down(["gpu-004"], "toolkit: no-capacity: none of g5.xlarge")
    run("scontrol", "create", "reservation", "reservationname=maintenance", "users=root",
        "nodes=cpu-001", "starttime=now+1day", "duration=60",
        "flags=maint,ignore_jobs")  # fmt: skip
    wait_for("accounting", lambda: "FAILED" in run("sacct", "-nXD", f"--jobs={jobs['failed']}"))
    return jobs


def has_restarted(job: int) -> bool:
    return bool(re.search(r" Restarts=[1-9]", run("scontrol", "show", "job", str(job))))


def capture_all(answers: Answers, jobs: dict[str, int]) -> None:
    for what in ("nodes", "jobs", "partitions", "reservations"):
        answers.capture(f"scontrol-{what}.json", "scontrol", "show", what, "--json")
    for command in ("squeue", "sinfo"):
        answers.capture(f"{command}.json", command, "--json")
    answers.capture("squeue-het.txt", "squeue", "--noheader", "--format=%A %i")
    answers.capture("scontrol-job.txt", "scontrol", "show", "job", str(jobs["requeued"]))
    answers.capture("scontrol-job-cancelled.txt", "scontrol", "show", "job", str(jobs["cancelled"]),
                    "--oneliner")  # fmt: skip
    answers.capture("scontrol-listpids.txt", "scontrol", "listpids")
    answers.capture("scontrol-config.txt", "scontrol", "show", "config")
    answers.capture("sinfo-partitions.txt", "sinfo", "--noheader", "--all", "--format=%R")
    answers.capture("sacct.json", "sacct", "--allusers", "--duplicates", "--json",
                    f"--jobs={jobs['requeued']}")  # fmt: skip
    answers.capture("sacct-helpformat.txt", "sacct", "--helpformat")
    for what in ("account", "user", "assoc", "cluster", "qos"):
        answers.capture(f"sacctmgr-{what}.json", "sacctmgr", "show", what, "--json")
    answers.capture("scontrol-ping.txt", "scontrol", "ping")
    answers.capture("scontrol-ping.json", "scontrol", "ping", "--json")
    answers.capture("unknown-job.json", "scontrol", "show", "job", "4711", "--json")
    answers.capture("unknown-job.txt", "scontrol", "show", "job", "4711", "--oneliner")
    answers.capture("unknown-node.json", "scontrol", "show", "nodes", "gpu-099", "--json")
    for number, path in enumerate(sorted(Path("/var/log/slurm").glob("resume-*.json")), start=1):
        shutil.copy(path, answers.folder / f"resume-{number}.json")


def capture_by_toolkit(answers: Answers) -> None:
    """Capture the answers to the calls of people's commands."""
    argv = sacct.argv(
        sacct.fields((answers.folder / "sacct-helpformat.txt").read_text()),
        int(time.time()) - 3600, int(time.time()) + 60, "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    )  # fmt: skip
    answers.capture("sacct.txt", *argv)

    class Head:
        def run(self, argv, *, timeout=60):
            return answers.capture(f"sacctmgr-{argv[4]}.txt", *argv)

    current.read(Head(), "demo")


def capture_unreachable(answers: Answers, controller: subprocess.Popen[bytes]) -> None:
    """Capture the answers that commands give while slurmctld is away."""
    controller.terminate()
    controller.wait(timeout=60)
    calls = {
        "jobs": ("scontrol", "show", "jobs", "--json"),
        "jobs-text": ("scontrol", "show", "jobs", "--oneliner"),
        "job": ("scontrol", "show", "job", "1", "--json"),
        "job-text": ("scontrol", "show", "job", "1", "--oneliner"),
        "nodes": ("scontrol", "show", "nodes", "--json"),
        "ping": ("scontrol", "ping"),
        "squeue": ("squeue", "--json"),
    }
    with ThreadPoolExecutor(len(calls)) as pool:  # each waits for its time limit
        for name, argv in calls.items():
            pool.submit(answers.capture, f"unreachable-{name}.txt", *argv)


def keep_complaints(folder: Path) -> None:
    """Keep the lines of the daemons' logs that complain of anything."""
    for daemon in ("slurmctld", "slurmd", "slurmdbd"):
        lines = (Path("/var/log/slurm") / f"{daemon}.log").read_text().splitlines(keepends=True)
        text = "".join(line for line in lines if COMPLAINT.search(line))
        (folder / f"log-{daemon}.txt").write_text(text)


def main() -> None:
    output = Path(sys.argv[1]).resolve()
    output.mkdir(parents=True, exist_ok=True)
    answers = Answers(output)
    version = answers.capture("version.txt", "slurmctld", "-V").split()[-1]
    prepare(".".join(version.split(".")[:2]))
    start_accounting()
    controller = start_controller()
    make_accounts()
    jobs = make_history(ScontrolSlurm(SystemRunner(), "/usr/bin"))
    capture_all(answers, jobs)
    capture_by_toolkit(answers)
    capture_unreachable(answers, controller)
    keep_complaints(output)
    (output / "jobs.json").write_text(json.dumps(jobs, indent=1) + "\n")
    answers.write_calls()


if __name__ == "__main__":
    main()
