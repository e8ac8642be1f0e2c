import json, os, subprocess, time, base64
from pathlib import Path
import pytest
from tests.contract.deploy.test_join import *
from tests.contract.deploy.test_join import Setting
from toolkit.join.runner import ControllerRunner

pytestmark = [pytest.mark.filterwarnings("ignore")]
R = "/tmp/rc/root"


def until(what, f, s=60):
    end = time.monotonic() + s
    while True:
        v = f()
        if v:
            return v
        assert time.monotonic() < end, what
        time.sleep(0.5)


def test_real(config, tmp_path):
    p = subprocess.Popen(
        [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--uts",
            "--kill-child",
            "bash",
            "/tmp/rc/start.sh",
        ],
        stdout=open("/tmp/rc/start.log", "w"),
        stderr=subprocess.STDOUT,
    )
    try:
        child = until(
            "child",
            lambda: subprocess.run(
                ["pgrep", "-P", str(p.pid)], capture_output=True, text=True
            ).stdout.strip(),
        )
        ns = ["nsenter", "-t", child, "-m", "-p", "-u", "chroot", R, "/bin/sh", "-c"]
        run = ControllerRunner("ctl", tuple(ns))

        def tryrun(*a):
            try:
                return run.run(a)
            except Exception as e:
                return f"ERR {e}"

        until("ctl", lambda: "UP" in tryrun("scontrol", "ping"), 120)
        s = Setting(config, tmp_path)
        s.site = run
        print(
            tryrun(
                "sh",
                "-c",
                "setsid slurmd -N rack2 --conf-server 127.0.0.1:26817 >/tmp/sd.log 2>&1 </dev/null & sleep 4; tail -5 /tmp/sd.log /var/log/slurm/slurmd.log",
            )
        )
        until("rack2 idle", lambda: "idle" in tryrun("sinfo", "-hN", "-n", "rack2", "-o", "%T"), 90)
        creds = Path(s.config.aws.credentials_file).read_text()
        s.document["site"]["aws"] = {
            "principal": "arn:aws:iam::123456789012:root",
            "profile": "local",
            "credentials_file": "/etc/lab-keys",
        }
        run.run(["sh", "-c", "cat > /etc/lab-keys; chmod 644 /etc/lab-keys"], stdin=creds.encode())
        before = tryrun("sh", "-c", 'cd /etc/slurm; sha256sum *; stat -c "%n %a %U" *')
        print(s.join().plan().text())
        s.join().apply(yes=True)
        print(tryrun("cat", "/etc/slurm/toolkit-burst.conf"))
        print(tryrun("sinfo"))
        assert s.join().plan().is_empty
        print("POWER", tryrun("sh", "-c", 'scontrol show config | grep -i -E "^(resume|suspend)"'))
        print(
            tryrun(
                "runuser",
                "-u",
                "ada",
                "--",
                "sbatch",
                "-p",
                "burst",
                "-N2",
                "--output=/dev/null",
                "--wrap=true",
            )
        )
        ec2 = s.clients.client("ec2")

        def inst():
            return [
                (t["Value"], i["State"]["Name"])
                for g in ec2.describe_instances(
                    Filters=[{"Name": "tag:toolkit:cluster", "Values": ["burst"]}]
                )["Reservations"]
                for i in g["Instances"]
                for t in i["Tags"]
                if t["Key"].startswith("toolkit:node")
            ]

        try:
            print("INST", until("instances", inst, 60))
        finally:
            print(tryrun("sh", "-c", "cat /var/log/slurm-toolkit/*.log | tail -5"))
        run.run(["scontrol", "update", "nodename=rack2", "state=power_down"])
        time.sleep(12)
        print(
            "DIAG",
            tryrun(
                "sh",
                "-c",
                "scontrol show node rack2 | grep -i state; ls -la /var/log/slurm /var/log/slurm-toolkit; cat /var/log/slurm-toolkit/suspend.log; grep -i power /var/log/slurm/slurmctld.log | tail",
            ),
        )
        print(
            "HAND",
            tryrun(
                "sh",
                "-c",
                "runuser -u slurm -- /opt/slurm-toolkit/bin/slurm-suspend rack2; echo rc $?; cat /var/log/slurm/site-power.log; cat /var/log/slurm-toolkit/suspend.log",
            ),
        )
        until(
            "down",
            lambda: "lab-power-down rack2" in tryrun("cat", "/var/log/slurm/site-power.log"),
            60,
        )
        time.sleep(8)
        run.run(["scontrol", "update", "nodename=rack2", "state=power_up"])
        until(
            "up", lambda: "lab-power-up rack2" in tryrun("cat", "/var/log/slurm/site-power.log"), 60
        )
        print(
            tryrun(
                "runuser",
                "-u",
                "ada",
                "--",
                "sbatch",
                "-p",
                "green,burst",
                "--output=/dev/null",
                "--wrap=true",
            )
        )
        print("SITE", tryrun("cat", "/var/log/slurm/site-power.log"))
        print(
            tryrun(
                "runuser", "-u", "slurm", "--", "/opt/slurm-toolkit/bin/slurm-reconcile", "--plan"
            )
        )
        print(tryrun("runuser", "-u", "slurm", "--", "/opt/slurm-toolkit/bin/slurm-reconcile"))
        print(tryrun("sh", "-c", "tail -3 /var/log/slurm-toolkit/reconcile.log; sinfo; squeue"))
        from toolkit.explain import head_facts

        rep = head_facts.fetch_report(run)
        print("REPORT", [n.name for n in rep.nodes], rep.unread)
        def job2(): return tryrun("sh","-c","squeue -h -j 2 -o '%i %T %P'")
        print("JOB2", job2())
        try: s.removal().remove(yes=True)
        except Exception as e: print("REMOVE", type(e), e)
        print("JOB2 after", job2(), tryrun("sinfo"), tryrun("cat","/etc/slurm/toolkit-burst.conf"))
        run.run(["scancel","2"]); until("gone", lambda: not job2().strip() or "Invalid" in job2(), 60)
        s.removal().remove(yes=True)
        assert tryrun("sh", "-c", 'cd /etc/slurm; sha256sum *; stat -c "%n %a %U" *') == before
        print(
            tryrun("sinfo"),
            tryrun("sh", "-c", 'scontrol show config | grep -i -E "^(resume|suspend)prog"'),
            tryrun("ls", "/opt/slurm-toolkit"),
        )
    finally:
        print(
            "CTLLOG",
            subprocess.run(
                ["sh", "-c", f"tail -3 /tmp/rc/start.log /tmp/rc/ctl.log"],
                capture_output=True,
                text=True,
            ).stdout[-1500:],
        )
        try:
            print(
                tryrun(
                    "sh",
                    "-c",
                    'grep -i -E "error|specified|reconf" /var/log/slurm/slurmctld.log | tail -25',
                )
            )
        except Exception as e:
            print(e)
        p.kill()
        p.wait()
