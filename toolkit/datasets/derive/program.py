"""Builds by a program that reads folders and writes into one."""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkit.datasets.derive.derive import Build
from toolkit.datasets.errors import BuildFailed, DataError

_STDERR = 2
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def program_build(words: Sequence[str]) -> Build:
    """Return a build that runs these words as a program.

    `{input}`, `{input2}`, `{output}` and `{PARAMETER}` are replaced. The environment
    has the same values: TOOLKIT_INPUTS (one a line), TOOLKIT_OUTPUT, TOOLKIT_PARAMS
    (JSON). The program's standard output goes to standard error.
    """

    def build(inputs: Sequence[Path], output: Path, params: Mapping[str, Any]) -> None:
        argv = [_expand_placeholders(word, inputs, output, params) for word in words]
        variables = {
            "TOOLKIT_INPUTS": "\n".join(map(str, inputs)),
            "TOOLKIT_OUTPUT": str(output),
            "TOOLKIT_PARAMS": json.dumps(dict(params)),
        }
        try:
            exit_code = subprocess.run(
                argv, env={**os.environ, **variables}, stdout=_STDERR, check=False
            ).returncode
        except OSError as error:
            raise BuildFailed(f"{argv[0]} can't be run: {error.strerror}") from error
        if exit_code:
            raise BuildFailed(f"{argv[0]} exited with {exit_code}; its output was deleted")

    return build


def code_files(words: Sequence[str]) -> list[Path]:
    """Return the files among a program's words. Raises DataError.

    An interpreter found by PATH is not one of them.
    """
    paths = [path for word in words if (path := Path(word)).is_file()]
    if not paths:
        raise DataError(
            "no word of the command is a file, so the code is unknown",
            next_step="name it: --code FILE, or --code FOLDER",
        )
    return paths


def key_params(words: Sequence[str], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that the key is made of. Raises DataError."""
    reserved_names = {"command", "output"} | {name for name in params if name.startswith("input")}
    if clash := sorted(reserved_names & params.keys()):
        raise DataError(f"{clash[0]} can't be the name of a parameter")
    return {"command": list(words), **params}


def _expand_placeholders(
    word: str, inputs: Sequence[Path], output: Path, params: Mapping[str, Any]
) -> str:
    values = {"output": str(output), "input": str(inputs[0]) if inputs else ""}
    values |= {f"input{number}": str(path) for number, path in enumerate(inputs, start=1)}
    values |= {name: str(value) for name, value in params.items() if name != "command"}
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), word)
