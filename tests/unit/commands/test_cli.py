"""The command line: start-up, exit codes and next steps."""

import subprocess
import sys
from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from toolkit import cli
from toolkit.commands.groups import SuggestingGroup
from toolkit.errors import ConfigInvalid, NotConfirmed, Problem, ToolkitError

HEAVY = ("boto3", "botocore", "pydantic", "rich", "jinja2", "ruamel", "moto")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_and_version_import_nothing_heavy(arguments):
    """Import no slow module at start-up.

    Without them start-up takes less than 150 ms.
    """
    code = (
        "import sys, toolkit.cli as c\n"
        f"code = c.run({arguments!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_a_command_has_a_help_text(name):
    """Print a command's help without AWS."""
    module = import_module(f"toolkit.commands.{name.replace('-', '_')}")
    assert isinstance(module.command, click.Command)
    assert module.command.help
    result = CliRunner().invoke(cli.cli, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_each_line_of_the_command_list_is_a_sentence():
    """End each line of the command list with a full stop."""
    for name, line in cli.COMMANDS.items():
        assert line.endswith("."), name


def test_every_option_of_every_command_has_a_help_text():
    """Refuse an option without a help text, because nobody could use it."""

    def walk(command, path):
        for param in command.params:
            if isinstance(param, click.Option):
                assert param.help, f"{path} {param.opts}"
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                child = command.get_command(click.Context(command), name)
                walk(child, f"{path} {name}")

    walk(cli.cli, "toolkit")


def _failing(error):
    @click.command("failing")
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "expected_text"),
    [
        (ToolkitError("it broke", next_step="mend it"), 1, "next: mend it"),
        (ConfigInvalid("c.yaml", [Problem(3, "a.b", "wrong")]), 2, "line 3: a.b: wrong"),
        (NotConfirmed("this loses x"), 3, "[not-confirmed]"),
        (click.UsageError("no"), 2, "no"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_expected_error_prints_its_message_and_sets_the_exit_code(
    monkeypatch, capsys, error, code, expected_text
):
    """Print the reason code for scripts and the next step for people.

    No traceback is printed.
    """
    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: _failing(error))
    assert cli.run(["failing"]) == code
    captured = capsys.readouterr()
    assert expected_text in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("argv", "suggestion"),
    [
        (["statsu"], "'status'"),
        (["reconcil"], "'reconcile'"),
        (["rus"], "'runs' or 'run'"),
        (["config", "chek"], "'check'"),
        (["local", "throtle"], "'throttle'"),
        (["status", "--jsno"], "--json"),
        (["xyzzy"], ""),
        (["config", "xyzzy"], ""),
    ],
)
def test_a_mistyped_name_exits_with_2_and_the_nearest_name_is_suggested(capsys, argv, suggestion):
    """Exit with code 2, and suggest only near names."""
    assert cli.run(argv) == 2
    error_output = capsys.readouterr().err
    assert argv[-1] in error_output
    assert ("Did you mean" in error_output) == bool(suggestion)
    assert suggestion in error_output


def test_every_command_group_suggests_the_nearest_name():
    """Suggest the nearest name in groups as well."""

    def groups(command, path):
        if isinstance(command, click.Group):
            yield path, command
            for name in command.list_commands(click.Context(command)):
                child = command.get_command(click.Context(command), name)
                yield from groups(child, f"{path} {name}")

    groups_by_path = dict(groups(cli.cli, "toolkit"))
    assert len(groups_by_path) >= 8
    assert [
        path for path, one in groups_by_path.items() if not isinstance(one, SuggestingGroup)
    ] == []


def test_a_command_returns_its_exit_code(monkeypatch):
    """Take a command's return value as its exit code."""

    @click.command("odd")
    def command():
        return 7

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: command)
    assert cli.run(["odd"]) == 7
