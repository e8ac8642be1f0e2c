"""mutmut over the deciding modules, one module at a time.

Every survivor must be listed with its reason. mutmut changes one thing of a function at a time, and
runs the tests that reach that function. It does not change code outside of functions, nor decorated
functions (properties, generators behind contextmanager). A mutant that mypy refuses counts as
noticed too, since `make types` is part of `make test`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.mutants.core import CORE, MUTATED
from tests.mutants.tree import ROOT, copied, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

LISTED = ROOT / "tests" / "mutants" / "survivors.toml"
BIN = ROOT / ".venv" / "bin"
# -P: the tests of a mutant must not find modules beside this file.
RUN_MUTMUT = (BIN / "python", "-P", ROOT / "tests" / "mutants" / "run_mutmut.py", "run")
BY_TESTS = {1, 3, -24, 24, 36, 152, 255}
"""pytest's exit codes for a mutant that fails tests, and those of one out of CPU seconds."""

BY_TYPES = 37

# mutmut puts the copies of a function side by side, and spells out conditions that a mutant makes
# constant. Errors that mypy reports for these reasons alone are not counted.
MYPY = (
    f"{BIN}/python",
    "-m",
    "mypy",
    "--no-warn-unused-ignores",
    "--no-warn-unreachable",
    "--disable-error-code",
    "no-redef",
    "--disable-error-code",
    "has-type",
    "--output",
    "json",
)

# These repeat a save for each of its file operations. They take longer than all others together.
LONG = ("at_any_file_operation", "torn_write")
ARGUMENTS = ["-p", "no:randomly", "-p", "no:cacheprovider", "--timeout=60"]
ARGUMENTS += ["-k", " and ".join(f"not {name}" for name in LONG)]

# A fork of the process that ran earlier tests would have its thread pools without their threads.
SETTINGS = """
[tool.mutmut]
process_isolation = "forkserver"
source_paths = ["slurmplugins", "toolkit"]
only_mutate = ["{module}"]
also_copy = ["templates", "examples", "ansible", "jobscripts", "scripts", "docs"]
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = {arguments}
type_check_command = {types}
"""

LITERAL = re.compile(r"""(["'])((?:(?!\1).)*)\1""")
SENTENCE = re.compile(r"\w[\w,;:]* \w")


@dataclass(frozen=True)
class Survivor:
    """A change that no test noticed.

    `old` became `new` in a function of a module.
    """

    module: str
    function: str
    old: str
    new: str

    @property
    def wording(self) -> bool:
        """Tell whether the lines differ in a message's case or marks alone."""
        return self.old != self.new and _spelt_alike(self.old) == _spelt_alike(self.new)


@dataclass(frozen=True)
class Judged:
    """The counts of a module's mutants.

    A mutant of wording is in no other count of results.
    """

    mutants: int
    by_tests: int
    by_types: int
    wording: int = 0
    survivors: frozenset[Survivor] = field(default_factory=frozenset)


def main(modules: Sequence[str]) -> int:
    """Print the survivors of some modules, or of all.

    Returns 1 if a survivor is not listed, or if a listed one does not survive.
    """
    listed = known()
    wrong = 0
    for module in modules or MUTATED:
        begun = time.monotonic()
        judged = judge(module)
        expected = frozenset(item for item in listed if item.module == module)
        say(
            f"| {module} | {judged.mutants} | {judged.by_tests} | {judged.by_types} "
            f"| {judged.wording} | {len(judged.survivors)} |  in {time.monotonic() - begun:.0f} s"
        )
        tell("NOT LISTED", judged.survivors - expected)
        tell("LISTED, AND GONE", expected - judged.survivors)
        wrong += len(judged.survivors ^ expected)
    return 1 if wrong else 0


def tell(what: str, items: Iterable[Survivor]) -> None:
    """Print survivors that differ from the list."""
    for item in sorted(items, key=str):
        say(f"  {what} {item.function}\n    - {item.old}\n    + {item.new}")


def known() -> dict[Survivor, str]:
    """Return the listed survivors, each with its reason."""
    data = tomllib.loads(LISTED.read_text())
    return {
        Survivor(row["module"], row["function"], change["old"], change["new"]): row["why"]
        for row in data.get("survivors", ())
        for change in row["changes"]
    }


def judge(module: str) -> Judged:
    """Make each mutant of one module, and run its tests.

    It does so in a copy of the checkout.
    """
    with copied() as tree:
        settings = SETTINGS.format(
            module=module,
            tests=json.dumps(CORE[module]),
            types=json.dumps([*MYPY, module]),
            arguments=json.dumps(ARGUMENTS),
        )
        with (tree / "pyproject.toml").open("a") as file:
            file.write(settings)
        return judged(tree, module, run(tree, module))


def run(tree: Path, module: str) -> dict[str, int]:
    """Run mutmut and return the exit code of each mutant's tests."""
    # Tests may start processes, which must find this environment's Python on PATH.
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        RUN_MUTMUT,
        cwd=tree,
        env={**os.environ, "PATH": path, "TMPDIR": str(tree.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    results = tree / "mutants" / f"{module}.meta"
    if not results.is_file():
        raise SystemExit(f"{module}: mutmut failed:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    codes: dict[str, int | None] = json.loads(results.read_text())["exit_code_by_key"]
    if unrun := [name for name, code in codes.items() if code is None]:
        raise SystemExit(f"{module}: {len(unrun)} mutants were not run:\n{ran.stdout[-2000:]}")
    return {name: code for name, code in codes.items() if code is not None}


def judged(tree: Path, module: str, codes: dict[str, int]) -> Judged:
    """Separate the mutants that nothing noticed from the others."""
    by_types = [name for name, code in codes.items() if code == BY_TYPES]
    alive = [name for name, code in codes.items() if code not in {*BY_TESTS, BY_TYPES}]
    changes = {name: shown(tree, module, name) for name in alive}
    wording = [name for name, change in changes.items() if change.wording]
    return Judged(
        mutants=len(codes),
        by_tests=len(codes) - len(by_types) - len(alive),
        by_types=len(by_types),
        wording=len(wording),
        survivors=frozenset(item for item in changes.values() if not item.wording),
    )


def shown(tree: Path, module: str, name: str) -> Survivor:
    """Return the lines that the mutant changes."""
    diff = subprocess.run(
        [BIN / "mutmut", "show", name], cwd=tree, capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"\.x(?:_|ǁ)(.+)__mutmut_\d+$", name)
    function = found.group(1).replace("ǁ", ".") if found else name
    lines = diff.splitlines()
    old = [line[1:].strip() for line in lines if line.startswith("-") and line[:3] != "---"]
    new = [line[1:].strip() for line in lines if line.startswith("+") and line[:3] != "+++"]
    return Survivor(module, function, " ".join(old), " ".join(new))


def _spelt_alike(line: str) -> str:
    """Return the line with its messages in small letters.

    mutmut's mark around them is left out.
    """
    return LITERAL.sub(lambda found: _plain(found.group()), line)


def _plain(literal: str) -> str:
    """Return a literal of several words in small letters.

    Only a person reads such a literal. Any other literal stays as it is.
    """
    text = literal[1:-1]
    if not SENTENCE.search(text):
        return literal
    marked = text.startswith("XX") and text.endswith("XX")
    return (text[2:-2] if marked else text).lower()
