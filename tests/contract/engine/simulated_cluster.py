"""A simulated cluster whose EC2 and slurmctld can be hostile.

resume, suspend, resume_fail and reconcile are the real programs. They run as slurmctld and systemd
run them, each in a process of its own.

EC2 is the local cloud over HTTP, behind a gate that can lie. slurmctld is the fake one behind
`scontrol` and `squeue`. All their clocks run `speed` times as fast as real time.
"""

from __future__ import annotations

import contextlib
import io
import json
import socketserver
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmplugins.cloud.ec2 import Ec2
from slurmplugins.errors import SlurmUnreachable
from slurmplugins.model import hostlist
from tests.contract.engine import fork_server
from tests.contract.local.localcloud import started
from tests.fakes.engine import burst
from tests.fakes.scontrol import NO_JOBS, UNKNOWN_JOB, UNREACHED
from tests.fakes.slurm import FakeSlurm
from tests.patience import PROGRAM_SECONDS
from toolkit.local.endpoint import Call, call_of
from toolkit.local.options import ADMIN_KEY
from toolkit.local.sockets import Listeners, bind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from slurmplugins.model.instance import Instance
    from tests.contract.local.localcloud import Local

ROOT = Path(__file__).resolve().parents[3]
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}

PROGRAM = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from slurmplugins.config import paths
from slurmplugins.system import clock, daemonize
folder = Path({folder!r})
paths.BURST, paths.STATE, paths.LOGS = folder / "burst.json", folder / "state", folder / "logs"
paths.DECISIONS, paths.SLURM_CONF = paths.STATE / "decisions.jsonl", folder / "slurm.conf"
paths.SLURM_BIN, paths.SHARED = str(folder / "bin"), folder / "shared"
began, speed, ahead, wrong = {began!r}, {speed!r}, {ahead!r}, {wrong!r}
skips_sleep = {skips_sleep!r}
real, wait = time.time, time.sleep
true = lambda: began + (real() - began) * speed + ahead
clock.SystemClock.now = lambda self: true() + wrong
clock.SystemClock.monotonic = lambda self: true() - {booted_at!r}
def sleep(self, seconds):
    global ahead
    if skips_sleep:
        ahead += seconds
    else:
        wait(seconds / (speed or 1))
clock.SystemClock.sleep = sleep
clock.SystemClock.boot = lambda self: {boot!r}
daemonize.fork_to_background = lambda: True  # it stays with the caller, who waits for its end
from slurmplugins import {program}
{program}.main()
"""

CLIENT = """#!{python} -IS
import json, socket, sys
near = socket.socket(socket.AF_UNIX)
near.connect({socket!r})
fed = "" if len(sys.argv) > 1 else sys.stdin.read()
near.sendall(json.dumps([{name!r}, sys.argv[1:], fed]).encode() + b"\\n")
answer = json.loads(near.makefile("rb").read())
sys.stdout.write(answer["out"])
sys.stderr.write(answer["err"])
sys.exit(answer["status"])
"""


@dataclass(frozen=True)
class ClusterClock:
    """A clock that runs `speed` times as fast as real time.

    `ahead` is the time that a test skipped. At speed 0 nothing else moves it. With `skips_sleep`
    a program does not sleep: its own clock alone moves on.
    """

    speed: float = 1.0
    skips_sleep: bool = False
    began: float = field(default_factory=time.time)
    skipped: list[float] = field(default_factory=list)

    @property
    def ahead(self) -> float:
        return sum(self.skipped)

    def now(self) -> float:
        return self.began + (time.time() - self.began) * self.speed + self.ahead

    def monotonic(self) -> float:
        return self.now() - self.began + 10_000.0

    def boot(self) -> str:
        return "boot-1"

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / (self.speed or 1))


@dataclass(frozen=True)
class Reply:
    """An answer of the gate.

    The body's pieces are sent one by one.
    """

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    kind: str = "text/xml"

    @classmethod
    def refusal(cls, code: str, message: str = "as told", status: int = 400) -> Reply:
        """Return an error in EC2's own form."""
        text = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message>"
            "</Error></Errors><RequestID>r</RequestID></Response>"
        )
        return cls(status, text.encode())


@dataclass
class Lie:
    """A false answer to a number of calls of an action.

    The answer is `reply`, or the true one changed by `alter`. With `done`, the call is carried out
    as well. `when` selects the calls.
    """

    action: str
    reply: Reply | None = None
    alter: Callable[[str], str] | None = None
    times: float = float("inf")
    done: bool = False
    when: Callable[[Call], bool] = lambda _: True


class Gate:
    """A gate before the local cloud; it records calls, and can lie."""

    def __init__(self, cloud: Any) -> None:
        self._cloud = cloud
        self.turn: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self.asked: list[Call] = []
        self.lies: list[Lie] = []

    def count(self, action: str) -> int:
        return sum(call.action == action for call in self.asked)

    def lie(self, action: str, reply: Reply | None = None, **more: Any) -> Lie:
        """Answer this action so from now on.

        Of several lies that match, the newest is told.
        """
        self.lies.insert(0, Lie(action, reply, **more))
        return self.lies[0]

    def has_ended(self, lie: Lie) -> bool:
        """Return whether the lie is used up.

        Waits for a call that is being looked at.
        """
        with self._lock:
            return lie.times <= 0

    def honest(self) -> None:
        """Remove all lies."""
        self.lies.clear()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        environ["wsgi.input"] = io.BytesIO(body)
        call = call_of(environ, body)
        self.turn()
        lie = self._chosen(call)
        if lie is None:
            return self._cloud.router(environ, start_response)
        answer = Reply()
        if lie.done or lie.alter:
            answer = self._true(environ)
        if lie.alter and not isinstance(answer.body, bytes):
            raise AssertionError("only a whole answer can be altered")
        if lie.alter and isinstance(answer.body, bytes):
            answer = Reply(answer.status, lie.alter(answer.body.decode()).encode())
        return _send(lie.reply or answer, start_response)

    def _chosen(self, call: Call) -> Lie | None:
        with self._lock:
            self.asked.append(call)
            fits = (lie for lie in self.lies if lie.action == call.action and lie.times > 0)
            chosen = next((lie for lie in fits if lie.when(call)), None)
            if chosen is not None:
                chosen.times -= 1
            return chosen

    def _true(self, environ: dict[str, Any]) -> Reply:
        status: list[str] = []

        def start(line: str, _headers: Any, _info: Any = None) -> Any:
            status.append(line)
            return lambda _: None

        body = b"".join(self._cloud.router(environ, start))
        return Reply(int(status[0].split(" ", 1)[0]), body)


def _send(reply: Reply, start_response: Any) -> Iterable[bytes]:
    whole = isinstance(reply.body, bytes)
    headers = [("Content-Type", reply.kind)]
    if whole:
        headers.append(("Content-Length", str(len(reply.body))))  # type: ignore[arg-type]
    start_response(f"{reply.status} {REASONS.get(reply.status, 'Odd')}", headers)
    return [reply.body] if whole else reply.body  # type: ignore[list-item,return-value]


class UnknownJobError(Exception):
    """slurmctld does not know the job."""


def _is_json_of_jobs(words: list[str]) -> bool:
    return words[:2] in (["show", "job"], ["show", "jobs"]) and "--json" in words


class Controller:
    """Answers scontrol and squeue from the fake slurmctld.

    `alter` gets a read's words and its JSON, and returns the JSON to send. It may raise
    SlurmUnreachable.
    """

    def __init__(self, slurm: FakeSlurm) -> None:
        self.slurm = slurm
        self.asked: list[str] = []
        self.violations: list[str] = []  # of the fake's laws on what the engine may ask
        self.alter: Callable[[list[str], dict[str, Any]], dict[str, Any]] = lambda _, data: data
        self.lock = threading.RLock()

    def answer(self, program: str, words: list[str], fed: str) -> tuple[int, str, str]:
        with self.lock:
            commands = [line.split(" ") for line in fed.splitlines()] if fed else [words]
            try:
                out = "".join(self._one(program, command) for command in commands)
            except SlurmUnreachable:
                return (0, NO_JOBS, "") if _is_json_of_jobs(commands[0]) else (1, "", UNREACHED)
            except UnknownJobError:
                return (0, NO_JOBS, "") if _is_json_of_jobs(commands[0]) else (1, "", UNKNOWN_JOB)
            except AssertionError as error:
                self.violations.append(f"{' '.join(words)}: {error}")
                return 1, "", f"{type(error).__name__}: {error}"
            except (KeyError, ValueError, RuntimeError) as error:
                return 1, "", f"{type(error).__name__}: {error}"
            except Exception as error:  # noqa: BLE001 - what the fake refuses, scontrol says
                return 1, "", str(error)
            return 0, out, ""

    def _one(self, program: str, words: list[str]) -> str:
        self.asked.append(" ".join([program, *words]))
        if program == "squeue" and "--format=%A %i" in words:
            return "".join(f"{number} {name}\n" for number, name in self._names().items())
        if program == "squeue" and "--format=%A %i %T" in words:
            names = self._names()
            return "".join(f"{job} {names[job]} {self._state(job)}\n" for job in names)
        if program == "squeue":
            return self._shown(words, {"jobs": self._queue()})
        match words:
            case ["show", "nodes", *rest]:
                given = [word for word in rest if not word.startswith("--")]
                chosen = hostlist.expand(given[0]) if given else None
                return self._shown(words, {"nodes": self._nodes(chosen)})
            case ["show", "jobs" | "job", *rest]:
                numbers = [word for word in rest if word.isdigit()]
                jobs = [*self._queue(), *self._ended()]
                found = [job for job in jobs if not numbers or str(job["job_id"]) in numbers]
                if numbers and not found:
                    raise UnknownJobError
                return self._shown(words, {"jobs": found})
            case ["update", *settings]:
                self._update(dict(_pair(word) for word in settings))
            case ["hold", number]:
                self.slurm.hold(int(number))
            case ["requeue", number]:
                self.slurm.requeue(int(number))
            case _:
                raise ValueError(f"invalid keyword: {' '.join(words)}")
        return ""

    def _names(self) -> dict[int, str]:
        """Return squeue's names of all jobs, those of het jobs' components first."""
        het_jobs = self.slurm.het_jobs()
        names = {n: f"{het_jobs[n]}+{n - het_jobs[n]}" for n in het_jobs}
        return names | {n: str(n) for n in self.slurm.queue if n not in het_jobs}

    def _state(self, job: int) -> str:
        state = self.slurm.queue[job].state
        return "CONFIGURING" if state == "RUNNING" and not self.slurm.is_ready(job) else state

    def _shown(self, words: list[str], data: dict[str, Any]) -> str:
        dated = {**data, "last_update": {"set": True, "number": 1}, "errors": [], "warnings": []}
        return json.dumps(self.alter(words, dated))

    def _nodes(self, chosen: Sequence[str] | None) -> list[dict[str, Any]]:
        return [
            {
                "name": node.name,
                "state": sorted(node.flags),
                "reason": node.reason,
                "instance_id": node.instance_id,
                "address": node.address,
            }
            for node in self.slurm.nodes(chosen)
        ]

    def _queue(self) -> list[dict[str, Any]]:
        return [
            {
                "job_id": job.id,
                "job_state": sorted(job.flags),
                "nodes": job.nodes,
                "restart_cnt": job.restarts,
                "admin_comment": job.admin_comment,
                "submit_time": {"set": True, "infinite": False, "number": int(job.submitted_at)},
                "batch_flag": True,
                "partition": "spot",
                "het_job_id": {
                    "set": self.slurm.queue[job.id].whole is not None,
                    "infinite": False,
                    "number": self.slurm.queue[job.id].whole or 0,
                },
            }
            for job in self.slurm.jobs()
        ]

    def _ended(self) -> list[dict[str, Any]]:
        return [
            {
                "job_id": job.id,
                "job_state": sorted(job.flags),
                "nodes": job.nodes,
                "batch_flag": True,
                "requeue": job.requeue,
                "admin_comment": job.admin_comment,
                "end_time": {"set": True, "infinite": False, "number": int(job.ended_at)},
                "start_time": {"set": True, "infinite": False, "number": int(job.started_at)},
                "exit_code": {
                    "status": ["ERROR"],
                    "return_code": {"set": True, "infinite": False, "number": job.code or 0},
                },
            }
            for job in self.slurm.ended_jobs()
        ]

    def _update(self, said: dict[str, str]) -> None:
        if "jobid" in said:
            number, _, place = said["jobid"].partition("+")
            first = self.slurm.queue[int(number)]
            named = [job for job in self.slurm.queue.values() if job.whole == int(number)]
            for job in [first] if place or first.whole != int(number) else named:
                job.comment = said["admincomment"]
            return
        nodes = hostlist.expand(said["nodename"])
        for name, address in zip(nodes, said.get("nodeaddr", "").split(","), strict=False):
            if address:
                self.slurm.state[name].address = address
        for name in nodes:
            if "instanceid" in said:
                self.slurm.give(said["instanceid"], name)
        verb, reason = said.get("state", ""), said.get("reason", "")
        if verb in {"down", "drain"}:
            {"down": self.slurm.down, "drain": self.slurm.drain}[verb](nodes, reason)
        elif verb:
            getattr(self.slurm, verb)(nodes)


def _pair(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    return key.lower(), value


class SimulatedCluster:
    """A head node's files and programs, with their EC2 and their slurmctld."""

    def __init__(self, folder: Path, local: Local, gate: Gate, clock: ClusterClock) -> None:
        self.folder = folder
        self.local = local
        self.ec2 = gate
        self.clock = clock
        self.slurm = FakeSlurm(clock)  # type: ignore[arg-type]
        self.controller = Controller(self.slurm)
        self.wrong = 0.0
        """Seconds that the head's wall clock is ahead of the true time."""
        self.boot_id = "boot-1"
        self.booted_at = clock.began - 10_000.0
        self.environment: dict[str, str] = {}
        """Further variables of the programs' environment."""
        self.before: Callable[[], None] | None = None
        """Runs in each program before its start, to give up rights."""
        self.endpoint = ""
        self._settings: dict[str, Any] = {}
        self._cloud = Ec2("demo", lambda: local.client("ec2"))

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def configure(self, **more: Any) -> None:
        """Write burst.json with these settings over those so far."""
        self._settings |= more
        settings = {**self._burst(), **self._settings}
        (self.folder / "burst.json").write_text(json.dumps(settings))
        for pool in settings["pools"].values():
            known = [
                name for name in hostlist.expand(pool["nodes"]) if name not in self.slurm.state
            ]
            self.slurm.define(known)
        self.slurm.resume_timeout = settings["slurm"]["resume_timeout"]

    def _burst(self) -> dict[str, Any]:
        settings: dict[str, Any] = burst(endpoint_url=self.endpoint)
        subnets = self.local.client("ec2").describe_subnets()["Subnets"]
        zones = {item["AvailabilityZone"]: item["SubnetId"] for item in subnets}
        settings["slurm"]["bin"] = str(self.folder / "bin")
        for pool in settings["pools"].values():
            pool["subnets"] = {zone: zones[zone] for zone in pool["subnets"]}
        return settings

    # The programs

    def resume(self, nodes: str | None = None, content: bytes | None = None) -> int:
        """Run slurm-resume as slurmctld does.

        Without arguments the program gets all nodes that slurmctld waits for.
        """
        asks = self.slurm.asks()
        if content is None:
            jobs = [
                {
                    "job_id": ask.job,
                    "nodes_resume": hostlist.compress(ask.nodes),
                    "partition": "spot",
                }
                for ask in asks
            ]
            content = json.dumps({"jobs": jobs}).encode()
        if nodes is None:
            nodes = hostlist.compress({node for ask in asks for node in ask.nodes})
        (self.folder / "resume.json").write_bytes(content)
        return self.run("resume", nodes)

    def suspend(self) -> int:
        """Run slurm-suspend for the nodes that slurmctld has powered down lately."""
        nodes = hostlist.compress(self.slurm.suspended)
        self.slurm.suspended.clear()
        return self.run("suspend", nodes)

    def reconcile(self, passes: int = 1, period: float = 15.0) -> int:
        """Run slurm-reconcile as its timer does; return the worst exit status."""
        worst = 0
        for _ in range(passes):
            worst = max(worst, self.run("reconcile"))
            self.skip(period)
        return worst

    def run(self, program: str, *argv: str, timeout: float = PROGRAM_SECONDS) -> int:
        """Run a program to its end, and return its exit status."""
        process = self.start(program, *argv)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def start(self, program: str, *argv: str) -> subprocess.Popen[bytes] | fork_server.Program:
        """Start one of the programs beside the test."""
        code = PROGRAM.format(
            root=str(ROOT), folder=str(self.folder), program=program, began=self.clock.began,
            speed=self.clock.speed, ahead=self.clock.ahead, wrong=self.wrong, boot=self.boot_id,
            booted_at=self.booted_at, skips_sleep=self.clock.skips_sleep,
        )  # fmt: skip
        environment = {
            "AWS_ACCESS_KEY_ID": ADMIN_KEY,
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SLURM_RESUME_FILE": str(self.folder / "resume.json"),
            **self.environment,
        }
        errors = self.folder / "stderr"
        if self.before is None:
            return fork_server.start(code, argv, environment, errors)
        with errors.open("ab") as stream:
            return subprocess.Popen(
                [sys.executable, "-I", "-c", code, *argv],
                env=environment,
                stderr=stream,
                preexec_fn=self.before,  # noqa: PLW1509 - it takes no lock
            )

    # The cluster

    def reboot(self) -> None:
        """Have the head boot: its monotonic clock begins anew."""
        self.boot_id, self.booted_at = "boot-2", self.clock.now() - 60.0

    def skip(self, seconds: float) -> None:
        """Advance all clocks by that much time at once."""
        self.clock.skipped.append(seconds)
        self.turn()
        with self.controller.lock:
            self.slurm.tick()

    def turn(self) -> None:
        """Let instances reach the states that are due."""
        ahead = self.clock.ahead if not self.clock.speed else self.clock.now() - time.time()
        self.local.clock.offset = self.local.wall.offset = ahead
        self.local.cloud.machine_controller.tick()

    def boot(self) -> None:
        """Have slurmd register from each live instance that is a node."""
        self.turn()
        self.local.settle()
        with self.controller.lock:
            for item in self.live():
                if item.node is not None:
                    self.slurm.register(item.node, item.id, item.address, item.launched_at)

    def instances(self) -> tuple[Instance, ...]:
        """Return the cluster's instances as EC2 truly has them."""
        return self._cloud.instances()

    def live(self) -> list[Instance]:
        """Return the cluster's instances that run, or are about to."""
        return [item for item in self.instances() if item.state.live]

    def log(self, program: str) -> list[dict[str, Any]]:
        """Return the log lines of all runs of a program."""
        path = self.folder / "logs" / f"{program}.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def journal(self) -> list[dict[str, Any]]:
        text = (self.state / "journal.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


class _Caller(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        program, words, fed = json.loads(self.rfile.readline())
        controller: Controller = self.server.controller  # type: ignore[attr-defined]
        status, out, err = controller.answer(program, words, fed)
        self.wfile.write(json.dumps({"status": status, "out": out, "err": err}).encode())


@contextlib.contextmanager
def served(controller: Controller, folder: Path) -> Iterator[None]:
    """Provide scontrol and squeue in `folder`/bin during the block."""
    socket = str(folder / "slurmctld")
    (folder / "bin").mkdir()
    for name in ("scontrol", "squeue"):
        program = folder / "bin" / name
        program.write_text(CLIENT.format(python=sys.executable, socket=socket, name=name))
        program.chmod(0o755)
    with socketserver.ThreadingUnixStreamServer(socket, _Caller) as server:
        server.daemon_threads = True
        server.controller = controller  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


@contextlib.contextmanager
def running_cluster(
    folder: Path, *, speed: float = 1.0, skips_sleep: bool = False, **options: Any
) -> Iterator[SimulatedCluster]:
    """Run a new cluster in which nothing runs.

    The options go to the local cloud.
    """
    for name in ("state", "logs", "shared", "cloud"):
        (folder / name).mkdir()
    (folder / "slurm.conf").write_text("ClusterName=demo\n")
    bound = bind("127.0.0.1", 0)
    listeners = Listeners()
    with started(folder / "cloud", **options) as local:
        gate = Gate(local.cloud)
        cluster = SimulatedCluster(folder, local, gate, ClusterClock(speed, skips_sleep))
        if not speed:
            local.clock.stop()
            local.wall.stop(cluster.clock.began)
        gate.turn = cluster.turn
        cluster.endpoint = f"http://127.0.0.1:{bound.getsockname()[1]}"
        listeners.add("hostile", bound, gate)
        thread = threading.Thread(target=listeners.run, daemon=True)
        thread.start()
        client = local.client("ec2")
        for name in ("demo-gpu", "demo-cpu"):
            data = {"ImageId": local.image}
            client.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        local.client("s3").create_bucket(Bucket="demo-bucket")
        cluster.configure()
        try:
            with served(cluster.controller, folder):
                yield cluster
            assert cluster.controller.violations == []
        finally:
            listeners.stop()
            thread.join()
