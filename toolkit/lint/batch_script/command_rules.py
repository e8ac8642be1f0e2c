"""Rules about the script's commands: rendezvous of ranks, their end, exit codes."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from toolkit.lint.batch_script import shell
from toolkit.lint.batch_script.rule import Hit, Rule
from toolkit.lint.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.lint.batch_script.script import RankLaunch, Script

TORCHRUN_PATIENCE: Final = 30
"""Seconds between SIGTERM and SIGKILL of torchrun's workers, by default."""

_PORT: Final = re.compile(
    r"(?:MASTER_PORT=|--(?:master|main|rdzv)[-_](?:process[-_])?port[= ]\s*|"
    r"--rdzv[-_]endpoint[= ]\s*\S*?[\w)}\"']:)[\"']?(?P<port>\d{2,5})\b"
)
_ENDPOINT: Final = re.compile(r"--rdzv[-_]endpoint[= ]\s*(?P<at>\$\([^)]*\)|[^\s\"']+)")
_HOSTNAME: Final = re.compile(
    r"(?:--rdzv[-_]endpoint|--master[-_]addr|--main_process_ip|MASTER_ADDR)[= ]\s*[\"']?\\?"
    r"(?:\$\(\s*hostname(?:\s+-[sfd]|\s+--(?:short|fqdn|long))?\s*\)|`\s*hostname[^`]*`"
    r"|\$\{?HOSTNAME\}?)"
)
_SHUTDOWN: Final = re.compile(
    r"(?:--shutdown[-_]timeout[= ]|TORCH_ELASTIC_SHUTDOWN_TIMEOUT=)\s*[\"']?(\d+)"
)
_SAVE_PATH: Final = re.compile(
    r"--(?:\w+[-_])?(?:checkpoint|ckpt|save|output)[-_](?:dir|path|folder)[= ]\s*[\"']?"
    r"(?P<path>/[^\s\"']*)"
)
_NODE_DISK_PATH: Final = re.compile(
    r"/(?:tmp|var/tmp|scratch/local|local_scratch|dev/shm|mnt/nvme|local_?disk|opt/dlami/nvme)"
)
_REQUEUE_ON_FAILURE: Final = re.compile(r"\|\|\s*(?:\(|\{)?\s*scontrol\s+requeue\b")
_BARE_WAIT: Final = re.compile(r"^\s*wait\s*;?\s*$")
_KEEPS_CODE: Final = re.compile(r"\$\?|PIPESTATUS|\bexit\b|\bwait\s+[\"$%-]|\bexit_with_verdict\b")
_PIPE: Final = re.compile(r"(?<!\|)\|(?!\|)\s*(?:tee|grep|cat|sed|awk)\b")
_ERREXIT: Final = re.compile(
    r"^\s*set\s+(?:-\w*e\w*|-\w+\s+-e|-o\s+errexit)|\A#!\S*bash\s+-\w*e", re.MULTILINE
)
_HARMLESS: Final = re.compile(
    r"^(?:fi|done|esac|\}|;;|else|set\s|unset\s|export\s|end\b|\w+\s*\(\)|\{|if\b|then\b)"
)


def _fixed_port(script: Script) -> Iterator[Hit]:
    if "exclusive" in script.directives:
        return  # no other job is on its nodes
    seen_ports: set[str] = set()
    for command in script.commands:
        text = shell.expand(command.text, script.variables)
        for match in _PORT.finditer(text):
            if match["port"] not in seen_ports:
                seen_ports.add(match["port"])
                yield _port_hit(command.line, f"port {match['port']} is the same for every job")
    for launch in script.launches:
        endpoint = _ENDPOINT.search(launch.text)
        if endpoint and ":" not in endpoint["at"].rpartition(")")[2] and not seen_ports:
            seen_ports.add("default")
            yield _port_hit(launch.line, "no port is given: torchrun takes 29400 for every job")


def _port_hit(line: int, problem: str) -> Hit:
    return Hit(
        line,
        f"{problem}: it collides with a second job on the node, or with its own last attempt",
        "derive the port from the job id and test it: jobscripts/lib/rendezvous.sh",
    )


def _hostname(script: Script) -> Iterator[Hit]:
    if not script.several_nodes:
        return
    for command in script.commands:
        if _HOSTNAME.search(shell.expand(command.text, script.variables)):
            yield Hit(
                command.line,
                "the ranks meet at $(hostname): other nodes may not resolve that name, and under"
                " srun each node uses its own",
                "use the address of the first node: jobscripts/lib/rendezvous.sh",
            )
            return


def _bad_exit(script: Script) -> Iterator[Hit]:
    if not script.several_nodes or "SLURM_KILL_BAD_EXIT" in script.variables:
        return
    for launch in script.launches:
        match = re.search(r"\bsrun\b(.*)", launch.text, re.DOTALL)
        if match and not re.search(r"--kill-on-bad-exit|(?:^|\s)-K\d?\b", match[1]):
            yield Hit(
                launch.line,
                "when one task fails, the other tasks wait on paid instances until their"
                " collectives time out",
                "srun --kill-on-bad-exit=1",
            )
            return


def _shutdown(script: Script) -> Iterator[Hit]:
    for launch in script.launches:
        if not launch.has_agent:
            continue
        match = _SHUTDOWN.search(launch.text) or _SHUTDOWN.search(script.text)
        seconds = int(match[1]) if match else TORCHRUN_PATIENCE
        if seconds < script.stop_seconds:
            default_note = "" if match else ", its default"
            yield Hit(
                launch.line,
                f"torchrun kills its workers {seconds} s{default_note} after SIGTERM, saved or not",
                f"torchrun --shutdown-timeout={script.stop_seconds:.0f}, at most KillWait (torch"
                " 2.13); with an older torch, stop the workers by a file, not by a signal",
            )
            return


def _deepspeed(script: Script) -> Iterator[Hit]:
    for launch in script.launches:
        if launch.kind == "deepspeed":
            yield Hit(
                launch.line,
                "deepspeed's launcher kills the workers 30 s after SIGTERM and exits with 1,"
                " whatever their exit codes",
                "start the workers with torchrun: torchrun … train.py --deepspeed_config ds.json",
            )
            return


def _exit_code_lost(script: Script) -> Iterator[Hit]:
    """Find a launch whose exit code is not the job's.

    Slurm takes the last command's exit code for the job's.
    """
    outer_launches = [launch for launch in script.launches if not launch.inner]
    hidden_launches = [launch for launch in outer_launches if _hiding_text(script, launch)]
    yield from (_exit_code_hit(launch, _hiding_text(script, launch)) for launch in hidden_launches)
    if not outer_launches or hidden_launches:
        return
    last_launch = max(outer_launches, key=lambda launch: launch.line)
    later_commands = [c for c in script.commands if c.line > last_launch.line and not c.inner]
    if any(_KEEPS_CODE.search(command.text) for command in later_commands):
        return
    if last_launch.in_background:
        for command in later_commands:
            if _BARE_WAIT.match(command.text):
                yield Hit(
                    command.line,
                    "a bare wait returns 0: Slurm counts a failed or interrupted job as completed",
                    "wait for that process: pid=$!; wait $pid; exit $?",
                )
                return
    elif not _ERREXIT.search(script.text):
        other_commands = [
            command for command in later_commands if not _HARMLESS.match(command.text)
        ]
        if other_commands:
            yield Hit(
                other_commands[-1].line,
                f"the job gets this command's exit code, not that of line {last_launch.line}",
                "write code=$? after line {last_launch.line}, and exit $code at the end",
            )


def _hiding_text(script: Script, launch: RankLaunch) -> str:
    """Return the text that hides the launch's exit code on its line.

    Empty if nothing does.
    """
    if re.search(r"\|\|\s*(?:true|:)\s*$", launch.text):
        return "|| true"
    keeps_pipe_code = "pipefail" in script.text or "PIPESTATUS" in script.text
    if not keeps_pipe_code and _PIPE.search(shell.without_substitutions(launch.text)):
        return "the pipe's last command, without pipefail,"
    return ""


def _exit_code_hit(launch: RankLaunch, hiding_text: str) -> Hit:
    return Hit(
        launch.line,
        f"{hiding_text} hides the exit code: Slurm counts a failed or interrupted job as completed",
        "set -o pipefail, and exit with the code of this command",
    )


def _requeue_loop(script: Script) -> Iterator[Hit]:
    for command in script.commands:
        if _REQUEUE_ON_FAILURE.search(command.text):
            yield Hit(
                command.line,
                "this requeues after any failure: a bug runs for ever, and a lost instance runs"
                " no command",
                "exit 85 when the work is saved, with RequeueExit=85 in slurm.conf",
            )


def _auto_resume(script: Script) -> Iterator[Hit]:
    for launch in script.launches:
        if "--auto-resume" in launch.text and "--container-" in launch.text:
            yield Hit(
                launch.line,
                "--auto-resume with a container: SageMaker's wrapper starts the step again without"
                " the container's options",
                "requeue the job instead (exit 85), or start the container inside the step",
            )
            return


def _saved_on_node(script: Script) -> Iterator[Hit]:
    for launch in script.launches:
        for match in _SAVE_PATH.finditer(launch.text):
            path = PurePosixPath(match["path"])
            if _NODE_DISK_PATH.match(str(path)) or any(map(path.is_relative_to, script.node_disks)):
                yield Hit(
                    launch.line,
                    f"files in {path} are lost with the instance",
                    "save to the shared filesystem, or upload within the interruption notice",
                )
                return


_E, _W = Severity.ERROR, Severity.WARNING
RULES: Final = (
    Rule("exit-code-lost", _E, _exit_code_lost),
    Rule("requeue-loop", _E, _requeue_loop),
    Rule("saved-on-node", _E, _saved_on_node),
    Rule("hostname-rendezvous", _E, _hostname),
    Rule("auto-resume-container", _W, _auto_resume),
    Rule("fixed-port", _W, _fixed_port),
    Rule("kill-on-bad-exit", _W, _bad_exit),
    Rule("shutdown-timeout", _W, _shutdown),
    Rule("deepspeed-launcher", _W, _deepspeed),
)
