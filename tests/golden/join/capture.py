"""Capture the answers of a rack site to the preflight of a join, from a small real Slurm.

It runs as root in a Debian tree with Slurm's daemons and commands, MariaDB and the toolkit's Python
packages. The tree has network, mount, process and host name namespaces of its own:

    cd CHECKOUT && PYTHONPATH=. python3 tests/golden/join/capture.py SITE OUTPUT.json

SITE is a folder of `sites`. OUTPUT.json then has every call that the preflight made, with its exit
code and what it printed. Nothing in them is edited.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.golden.join.sides import FITTING
from toolkit.join.errors import SiteCommandFailed
from toolkit.join.preflight.questions import Questions
from toolkit.join.site import read_site

HERE = Path(__file__).parent
ETC = Path("/etc/slurm")
ADDRESS = "10.10.0.5"
# The site's SlurmUser: Debian's own uid, and another.
SLURM_UIDS = {"fit": 64030, "wrong": 450}
HOMES = {"fit": "/shared/home", "wrong": "/home"}
PATIENCE = 60
PLUGSTACK = "plugstack.conf"
DBD = """\
AuthType=auth/slurm
DbdHost=localhost
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
PidFile=/run/slurmdbd/slurmdbd.pid
LogFile=/var/log/slurm/slurmdbd.log
"""


class RecordingRunner:
    """The controller itself, with each of its answers kept."""

    def __init__(self) -> None:
        self.calls: list[dict[str, object]] = []

    def run(self, argv, *, timeout=60, stdin=b"") -> str:
        done = subprocess.run(
            [*argv],
            input=stdin.decode(),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        answer = {"exit": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
        self.calls.append({"argv": [*argv], **answer})
        if done.returncode:
            raise SiteCommandFailed(
                f"{argv[0]} failed: {done.stderr.strip()}",
                returncode=done.returncode, stdout=done.stdout, stderr=done.stderr,
            )  # fmt: skip
        return done.stdout


def run(*argv: str, check: bool = True) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    except FileNotFoundError as error:
        done = subprocess.CompletedProcess(argv, 127, "", str(error))
    if check and done.returncode:
        sys.exit(f"{' '.join(argv)} failed: {done.stdout}{done.stderr}")
    return done.stdout


def wait_for(what: str, question) -> None:
    deadline = time.monotonic() + PATIENCE
    while not question():
        if time.monotonic() > deadline:
            sys.exit(f"no {what} within {PATIENCE} s")
        time.sleep(0.5)


def start(user: str, *argv: str) -> subprocess.Popen[bytes]:
    log = Path("/var/log/slurm", f"{Path(argv[0]).name}.out").open("wb")  # noqa: SIM115 - its child's
    command = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *argv)
    return subprocess.Popen(command, stdout=log, stderr=log)


def make_network(site: str) -> None:
    """Give the controller a card, and a way to the cloud's subnets."""
    run("hostname", "rack-head")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "switch")
    for card in ("eth0", "switch"):
        run("ip", "link", "set", card, "up")
    run("ip", "address", "add", f"{ADDRESS}/24", "dev", "eth0")
    if site == "fit":
        run("ip", "route", "add", "10.42.0.0/16", "via", "10.10.0.1")
    else:
        run("ip", "address", "add", "10.42.7.5/20", "dev", "eth0")
    hosts = ("127.0.0.1 localhost", f"{ADDRESS} rack-head",
             "10.10.0.11 rack01", "10.10.0.12 rack02",
             "10.10.0.6 rack-spare")  # fmt: skip
    Path("/etc/hosts").write_text("\n".join(hosts) + "\n")


def make_users(site: str) -> None:
    uid = str(SLURM_UIDS[site])
    if not run("id", "-u", "slurm", check=False):
        run("groupadd", "--gid", uid, "slurm")
        run("useradd", "--uid", uid, "--gid", uid, "slurm")
    elif run("id", "-u", "slurm").strip() != uid:
        run("groupmod", "--gid", uid, "slurm")
        run("usermod", "--uid", uid, "--gid", uid, "slurm")
    people = {"ada": 2001, "grace": 2002}
    if site == "wrong":
        people["render"] = 451  # a service that submits jobs
    for name, number in people.items():
        run("userdel", name, check=False)
        run("groupadd", "--force", "--gid", str(number), name)
        words = ("--uid", str(number), "--gid", str(number), "--no-create-home")
        run("useradd", *words, "--home", f"{HOMES[site]}/{name}", name)


def write_files(site: str) -> None:
    for folder, owner in {
        "/etc/slurm": "root", "/var/spool/slurmctld": "slurm", "/var/log/slurm": "slurm",
        "/run/mysqld": "mysql", "/run/slurm": "root", "/run/slurmctld": "slurm",
        "/run/slurmdbd": "slurm", "/opt/slurm/lib/slurm": "root", "/usr/local/sbin": "root",
    }.items():  # fmt: skip
        Path(folder).mkdir(parents=True, exist_ok=True)
        shutil.chown(folder, owner, owner)
    plugins = next(str(path.parent) for path in Path("/usr/lib").glob("*/slurm*/auth_slurm.so"))
    has_munge = shutil.which("munged") is not None
    shutil.rmtree(ETC)
    ETC.mkdir()
    for file in (HERE / "sites" / site).iterdir():
        text = file.read_text().replace("@PLUGINS@", plugins)
        # sbatch refuses every job while a plugin that plugstack.conf requires is missing.
        name = f"{PLUGSTACK}.later" if file.name == PLUGSTACK else file.name
        (ETC / name).write_text(text.replace("@AUTH@", "munge" if has_munge else "slurm"))
    for program in (ETC / "prolog", "/usr/local/sbin/rack-on", "/usr/local/sbin/rack-off"):
        Path(program).write_text("#!/bin/sh\n")
        Path(program).chmod(0o755)
    (ETC / "slurm.key").write_bytes(os.urandom(1024))
    (ETC / "slurmdbd.conf").write_text(DBD)
    for name in ("slurm.key", "slurmdbd.conf"):
        shutil.chown(ETC / name, "slurm", "slurm")
        (ETC / name).chmod(0o600)


def start_munge() -> None:
    if shutil.which("munged") is None:
        return
    for folder in ("/etc/munge", "/var/lib/munge", "/var/log/munge", "/run/munge"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        shutil.chown(folder, "munge", "munge")
    key = Path("/etc/munge/munge.key")
    key.unlink(missing_ok=True)
    key.write_bytes(os.urandom(1024))
    shutil.chown(key, "munge", "munge")
    key.chmod(0o400)
    start("munge", "munged", "--foreground", "--force")
    wait_for("munge", lambda: run("munge", "-n", check=False))


def start_accounting() -> None:
    run("mariadb-install-db", "--user=mysql", "--datadir=/var/lib/capture-db")
    start("mysql", "mariadbd", "--no-defaults", "--datadir=/var/lib/capture-db",
          "--skip-networking", "--socket=/run/mysqld/mysqld.sock",
          "--loose-innodb-snapshot-isolation=OFF")  # fmt: skip
    client = ("mariadb", "--no-defaults", "--socket=/run/mysqld/mysqld.sock")
    wait_for("MariaDB", lambda: run(*client, "-e", "SELECT 'up'", check=False))
    run(*client, "-e", "CREATE USER slurm@localhost IDENTIFIED VIA unix_socket;"
        " GRANT ALL ON slurm_acct_db.* TO slurm@localhost")  # fmt: skip
    daemon = start("slurm", "slurmdbd", "-D")

    def is_listening() -> bool:
        """Start slurmdbd, also again after MariaDB's first answers."""
        nonlocal daemon
        if daemon.poll() is not None:
            daemon = start("slurm", "slurmdbd", "-D")
        time.sleep(2)
        return ":6819" in run("ss", "-ltn")

    wait_for("slurmdbd", is_listening)


def submit(site: str) -> None:
    """Leave jobs in the queue: of people, and of a service."""
    for user in ("ada", "grace", "render") if site == "wrong" else ("ada",):
        argv = ("runuser", "-u", user, "--", "sbatch", "--chdir=/tmp", "--wrap=true")
        if site == "fit":
            run("sacctmgr", "-i", "add", "account", "vision")
            run("sacctmgr", "-i", "add", "user", user, "account=vision")
        wait_for(f"job of {user}", lambda argv=argv: run(*argv, check=False))
    run("scontrol", "create", "reservation", "reservationname=maintenance", "users=root",
        "nodes=ALL" if site == "wrong" else "nodes=rack01", "starttime=now+1day", "duration=60",
        "flags=maint,ignore_jobs")  # fmt: skip


def main() -> None:
    site, output = sys.argv[1], Path(sys.argv[2])
    make_network(site)
    make_users(site)
    write_files(site)
    if site == "fit":
        start_accounting()
    else:
        start_munge()
    start("slurm", "slurmctld", "-D")
    wait_for("slurmctld", lambda: "is UP" in run("scontrol", "ping", check=False))
    submit(site)
    if (waiting := ETC / f"{PLUGSTACK}.later").exists():
        waiting.rename(ETC / PLUGSTACK)
    runner = RecordingRunner()
    Questions(runner, read_site(runner)).ask(FITTING)
    output.write_text(json.dumps(runner.calls, indent=1) + "\n")


if __name__ == "__main__":
    main()
