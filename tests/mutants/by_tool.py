"""mutmut over the core, a module at a time; every survivor must be listed with its reason.

mutmut changes one thing of a function at a time, and runs the tests that reach that function. It
does not change what lies outside of functions, nor decorated functions (properties, generators
behind contextmanager).
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.mutants.core import CORE
from tests.mutants.tree import ROOT, copied, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

LISTED = ROOT / "tests" / "mutants" / "survivors.toml"
BIN = ROOT / ".venv" / "bin"
NOTICED = {1, 3}
"""pytest's exit codes for a mutant that fails tests."""

TIMEOUTS = {-24, 24, 36, 152, 255}

SETTINGS = """
[tool.mutmut]
source_paths = ["slurmplugins", "toolkit"]
only_mutate = ["{module}"]
also_copy = ["templates", "examples", "ansible", "jobscripts", "scripts", "docs"]
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-p", "no:randomly", "-p", "no:cacheprovider"]
"""


@dataclass(frozen=True)
class Survivor:
    """A change that no test noticed: `old` became `new` in a function of a module."""

    module: str
    function: str
    old: str
    new: str


def main(modules: Sequence[str]) -> int:
    """Print what survives; 1 where something does that is not listed, or is listed and does not."""
    listed = known()
    wrong = 0
    for module in modules or CORE:
        survivors, count = survivors_of(module)
        expected = {item for item in listed if item.module == module}
        say(f"{module}: {count} mutants, {len(survivors)} survive, {len(expected)} are listed")
        for item in sorted(survivors - expected, key=str):
            say(f"  NOT LISTED {item.function}\n    - {item.old}\n    + {item.new}")
        for item in sorted(expected - survivors, key=str):
            say(f"  LISTED, AND GONE {item.function}\n    - {item.old}\n    + {item.new}")
        wrong += len(survivors ^ expected)
    return 1 if wrong else 0


def known() -> dict[Survivor, str]:
    """The survivors that are listed, and why each may live."""
    data = tomllib.loads(LISTED.read_text())
    return {
        Survivor(item["module"], item["function"], item["old"], item["new"]): item["why"]
        for item in data.get("survivor", ())
    }


def survivors_of(module: str) -> tuple[set[Survivor], int]:
    """What survives in one module, and how many mutants there were."""
    with copied() as tree:
        settings = SETTINGS.format(module=module, tests=json.dumps(CORE[module]))
        with (tree / "pyproject.toml").open("a") as file:
            file.write(settings)
        ran = subprocess.run(
            [BIN / "mutmut", "run"], cwd=tree, capture_output=True, text=True, check=False
        )
        results = tree / "mutants" / f"{module}.meta"
        if not results.is_file():
            raise SystemExit(f"{module}: mutmut failed:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        codes: dict[str, int | None] = json.loads(results.read_text())["exit_code_by_key"]
        unrun = [name for name, code in codes.items() if code is None]
        if unrun:
            raise SystemExit(f"{module}: {len(unrun)} mutants were not run:\n{ran.stdout[-2000:]}")
        alive = [
            name for name, code in codes.items() if code not in NOTICED and code not in TIMEOUTS
        ]
        return {item for name in alive for item in shown(tree, module, name)}, len(codes)


def shown(tree: Path, module: str, name: str) -> Iterator[Survivor]:
    """The lines that the mutant changes."""
    diff = subprocess.run(
        [BIN / "mutmut", "show", name], cwd=tree, capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"\.x(?:_|ǁ)(.+)__mutmut_\d+$", name)
    function = found.group(1).replace("ǁ", ".") if found else name
    lines = diff.splitlines()
    old = [line[1:].strip() for line in lines if line.startswith("-") and line[:3] != "---"]
    new = [line[1:].strip() for line in lines if line.startswith("+") and line[:3] != "+++"]
    yield Survivor(module, function, " ".join(old), " ".join(new))
