#!/usr/bin/python3 -I
"""Build a virtual environment at PATH with the given Python, then keep it as SEED.

Prints `unchanged` as its last line if the seed has the same Python and the same requirements,
else `changed`. A virtual environment holds its own path in its scripts. Therefore it is built at
its final path and then moved; publish_tree.py puts it back.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

STAMP = ".stamp.json"
STDERR = 2
UV_VARIABLES = {  # pip's option -> uv's variable, and the separator of its values
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
}


def main(arguments: list[str]) -> int:
    """Build the environment unless the seed is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--seed", type=Path, required=True)
    parser.add_argument("requirements", nargs="*")
    options = parser.parse_args(arguments)
    try:
        digest = inputs(options.python, options.requirements)
        if stamped_inputs(options.seed) == digest:
            print("unchanged")
            return 0
        content = build(options.python, options.path, options.requirements)
        stamp(options.path, digest, content)
        keep(options.path, options.seed)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"training environment: {error}", file=sys.stderr)
        return 1
    print("changed")
    return 0


def inputs(python: str, requirements: list[str]) -> str:
    """Return a digest of everything that decides the environment's content."""
    version = output(python, "-I", "-c", "import sys; print(sys.version)")
    return hashlib.sha256("\0".join([python, version, *requirements]).encode()).hexdigest()


def stamped_inputs(seed: Path) -> str | None:
    """Return the digest that the seed was built with; None without a seed."""
    try:
        recorded = json.loads((seed / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(recorded.get("inputs"))


def build(python: str, path: Path, requirements: list[str]) -> str:
    """Make the environment; return its packages, one `name==version` a line."""
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    own_python = str(path / "bin" / "python")
    if has_pip(python):
        # The environment needs no pip of its own, and is smaller without.
        run(python, "-I", "-m", "venv", "--without-pip", str(path))
        pip = [python, "-m", "pip", "--python", own_python]
    else:
        run(python, "-I", "-m", "venv", str(path))
        pip = [own_python, "-m", "pip"]
    if requirements:
        if not install_with_uv(pip, path, requirements):
            run(*pip, "install", "--no-cache-dir", "--no-input", "--no-compile", *requirements)
        compile_all(own_python, path)
    return output(*pip, "freeze")


def install_with_uv(pip: list[str], path: Path, requirements: list[str]) -> bool:
    """Install with uv, in a fifth of pip's time; return False if pip must do it.

    uv does not read pip's configuration, and has no setting for some parts of it.
    """
    scratch = path.parent / f".{path.name}.uv"
    try:
        run(*pip, "install", "--quiet", "--no-input", "--target", str(scratch), "uv")
        # uv makes hard links into a cache on the same filesystem, so no file is written twice.
        uv = [str(scratch / "bin" / "uv"), "pip", "install", f"--cache-dir={scratch / 'cache'}"]
        variables = environment() | uv_settings(pip_settings(output(*pip, "config", "list")))
        argv = [*uv, "--python", str(path / "bin" / "python"), *requirements]
        return subprocess.run(argv, check=False, stdout=STDERR, env=variables).returncode == 0
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"without uv: {error}", file=sys.stderr)
        return False
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def pip_settings(listed: str) -> dict[str, str]:
    """Return the settings of `pip config list`, by option; environment variables win."""
    settings: dict[str, str] = {}
    for line in sorted(listed.splitlines(), key=lambda text: text.startswith(":env:")):
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = str(ast.literal_eval(value))
    return settings


def uv_settings(settings: dict[str, str]) -> dict[str, str]:
    """Return pip's settings as uv's environment variables."""
    # Like pip: the best version of all indexes, not of the first index that has one.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for option, (variable, separator) in UV_VARIABLES.items():
        if option in settings:
            variables[variable] = separator.join(settings[option].split())
    if settings.get("no-index", "").lower() in {"1", "true", "yes", "on"}:
        variables["UV_NO_INDEX"] = "1"
    return variables


def compile_all(python: str, path: Path) -> None:
    """Write bytecode, because jobs run as users who can't write it later.

    pip would use one core, and also compile the packages' own tests, a third of all files.
    """
    argv = [python, "-I", "-m", "compileall", "-q", "-j", "0", "-x", r"/tests?/", str(path / "lib")]
    # Some packages ship templates that are not valid Python: exit status 1. pip ignores it, too.
    subprocess.run(argv, check=False, stdout=subprocess.DEVNULL, env=environment())


def has_pip(python: str) -> bool:
    """Return whether this Python has pip; Debian's doesn't."""
    probe = [python, "-m", "pip", "--version"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def stamp(path: Path, inputs_digest: str, content: str) -> None:
    """Write the stamp into the environment; jobs log its digest of the content."""
    digest = hashlib.sha256(content.encode()).hexdigest()
    record = {"inputs": inputs_digest, "content": digest, "packages": content.split()}
    (path / STAMP).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def keep(path: Path, seed: Path) -> None:
    """Move the environment to the image's seed."""
    shutil.rmtree(seed, ignore_errors=True)
    seed.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(path, seed)


def run(*argv: str) -> None:
    """Run a command; its output goes to our stderr, because stdout holds our result."""
    subprocess.run(argv, check=True, stdout=STDERR, env=environment())


def output(*argv: str) -> str:
    """Return a command's output."""
    process = subprocess.run(argv, check=True, capture_output=True, text=True, env=environment())
    return process.stdout.strip()


def environment() -> dict[str, str]:
    """Return our environment without variables that change how Python runs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
