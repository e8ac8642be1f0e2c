"""The programs of the training library, and their names in texts."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from toolkit import training
from toolkit.training.__main__ import COMMANDS, main

REPO = Path(__file__).resolve().parents[3]
PLACES = ("README.md", "ansible", "docs", "examples", "jobscripts", "slurmplugins", "toolkit")
STARTED = re.compile(
    r"-m toolkit\.training(?P<path>\.[\w.]+)?(?: (?P<typed>[a-z-]+))?"
    r'|"-m", "toolkit\.training(?P<module>\.[\w.]+)?"(?:,\s+"(?P<given>[a-z-]+)")?'
)


def texts():
    """Return every file that starts a program or documents one."""
    for place in PLACES:
        root = REPO / place
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.suffix in {".md", ".py", ".sh", ".sbatch", ".yml", ".yaml", ".j2"}:
                yield path, path.read_text()


def test_every_program_that_a_text_starts_is_a_command():
    found = [(path.name, each) for path, text in texts() for each in STARTED.finditer(text)]
    assert [name for name, each in found if each["path"] or each["module"]] == []
    started = {each["typed"] or each["given"] for _, each in found} - {None}
    assert started >= {"audit", "end-of-attempt", "start-check", "similar-run"}
    assert started <= COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_program(command):
    assert callable(import_module(f"toolkit.training.{COMMANDS[command][0]}").main)


def test_a_command_imports_its_own_program_and_not_torch():
    code = (
        "import sys; from toolkit.training.__main__ import COMMANDS, main\n"
        "from importlib import import_module\n"
        "for module, _ in COMMANDS.values(): import_module(f'toolkit.training.{module}')\n"
        "print([name for name in ('torch', 'numpy', 'mlflow', 'optuna') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["ending"], 2), (["requeue"], 2)])
def test_a_name_that_is_no_command_is_answered_with_all_that_are(capsys, words, code):
    assert main(words) == code
    said = capsys.readouterr()
    assert all(f"  {command} " in said.out + said.err for command in COMMANDS)
    assert bool(said.err) == bool(code)


def test_the_arguments_and_the_exit_code_are_the_programs_own(tmp_path, capsys):
    assert main(["goodput", str(tmp_path)]) == 2
    assert "no attempts.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("name", training.__all__)
def test_every_public_name_has_a_home(name):
    home = training._HOMES[name]
    if name == "verdict":
        home, name = f"{home}.verdict", "done"
    tree = ast.parse(Path(find_spec(home).origin).read_text())
    defined = {getattr(node, "name", "") for node in tree.body}
    assert name in defined


def test_no_public_name_is_left_out():
    assert training._HOMES.keys() == set(training.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Ledger'"):
        training.Ledger  # noqa: B018  # the attribute access itself must fail
