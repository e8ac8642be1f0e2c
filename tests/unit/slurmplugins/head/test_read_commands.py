"""The commands of a reader: the list that `toolkit` and slurm-read on the head share."""

import base64
import json

import pytest

from slurmplugins import head_read
from slurmplugins.errors import BadName
from slurmplugins.head import read_commands
from slurmplugins.slurm import sacct as call
from toolkit.accounting import sacct, slurm_instances
from toolkit.accounts import current, read_associations
from toolkit.deploy.status import SERVICES
from toolkit.explain import head_facts

NAMES = (*call.REQUIRED, *call.OPTIONAL, *call.FREE_TEXT)


class Recorder:
    """A runner that keeps each command."""

    def __init__(self, answer="{}") -> None:
        self.answer, self.commands = answer, []

    def run(self, argv, *, timeout=60):
        self.commands.append(argv)
        return self.answer


def commands_of_people():
    """Return what the commands that change nothing run on the head."""
    runner = Recorder('{"at": 1}')
    for question in ((), ("pass",), ("job", "4711_3"), ("node", "gpu-001")):
        head_facts.fetch_report(runner, *question)
    head_facts.fetch_reconcile_plan(runner)
    accounts = Recorder("")
    current.read(accounts, "demo")
    read_associations(accounts, "demo")
    return [
        *runner.commands,
        *accounts.commands,
        ["systemctl", "is-active", *SERVICES, "mlflow"],
        ["scontrol", "ping"],
        ["scontrol", "show", "nodes", "--json"],
        list(read_commands.NODES),
        list(read_commands.SHARES),
        [*call.ENVIRONMENT, "sacct", "--helpformat"],
        sacct.argv(NAMES, 1_700_000_000, 1_700_086_400, "0123456789abcdef" * 2),
        slurm_instances.argv("demo", 1_700_000_000),
    ]


@pytest.mark.parametrize("argv", commands_of_people(), ids=lambda argv: " ".join(argv)[-60:])
def test_the_commands_that_change_nothing_are_a_readers(argv):
    assert read_commands.is_read(argv)
    assert read_commands.decode(read_commands.encode(argv)) == tuple(argv)


REFUSED = [
    [],
    ["id"],
    ["sh", "-c", "scontrol ping"],
    ["scontrol"],
    ["scontrol", "ping", "x"],
    ["scontrol", "show", "nodes", "--json", "x"],
    ["scontrol", "update", "nodename=gpu-001", "state=down"],
    ["systemctl", "stop", "slurmctld"],
    ["systemctl", "is-active", "--root=/tmp/x"],
    ["systemctl", "is-active", "-H", "ada@elsewhere"],
    ["sacctmgr", "-n", "-P", "show", "user", "-i"],
    ["sacctmgr", "-i", "modify", "user"],
    ["sacctmgr", "-n", "-P", "show", "file=/etc/shadow"],
    ["sacctmgr", "-n", "-P", "delete", "user"],
    [*call.ENVIRONMENT, "sacct", "--completion"],
    [*call.ENVIRONMENT, "sacct", "--helpformat\n"],
    [*call.ENVIRONMENT, "sacct", "--format=A;id"],
    ["env", "LD_PRELOAD=/home/ada/x.so", "sacct"],
    [*head_facts.HeadPrograms().module, "slurmplugins.reconcile"],
    [*head_facts.HeadPrograms().module, "slurmplugins.head_report", "--x"],
    [*head_facts.HeadPrograms().module, "slurmplugins.head_report", "node", "a b"],
    [*head_facts.HeadPrograms().as_user, f"{head_facts.BIN}/slurm-reconcile"],
    [*head_facts.HeadPrograms().as_user, f"{head_facts.BIN}/slurm-reconcile", "--plan", "x"],
    [*read_commands.NODES, "gpu-001"],
    [*read_commands.SHARES, "--users=ada"],
    [*head_facts.HeadPrograms().as_user, f"{head_facts.BIN}/slurm-govern"],
    ["cat", "/etc/slurm/slurm.key"],
]


@pytest.mark.parametrize("argv", REFUSED, ids=str)
def test_every_other_command_is_refused_on_both_sides(argv):
    assert not read_commands.is_read(argv)
    with pytest.raises(BadName):
        read_commands.decode(read_commands.encode(argv))


@pytest.mark.parametrize(
    "word",
    ["", "!", "a", "$(id)", "e30=", base64.urlsafe_b64encode(b"\xff").decode(),
     base64.urlsafe_b64encode(json.dumps(["scontrol", 1]).encode()).decode(),
     base64.urlsafe_b64encode(b"[" * 100_000).decode()],
    ids=["empty", "mark", "short", "shell", "object", "not utf-8", "a number", "deep"],
)  # fmt: skip
def test_a_word_that_is_no_command_is_refused(word):
    with pytest.raises(BadName):
        read_commands.decode(word)


def test_slurm_read_returns_the_command_of_its_word():
    argv = ("scontrol", "ping")
    assert head_read.command_of([read_commands.encode(argv)]) == argv


@pytest.mark.parametrize("arguments", [[], ["a", "b"], [read_commands.encode(["id"])]])
def test_slurm_read_refuses_all_else_with_a_word_about_it(arguments):
    with pytest.raises(SystemExit, match=r"usage: slurm-read WORD|not a reader's command: 'id'"):
        head_read.command_of(arguments)
