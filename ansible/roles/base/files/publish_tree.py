#!/usr/bin/python3 -I
"""Put a whole copy of SOURCE at DEST if they differ.

Prints `changed` or `unchanged`. With --stamp NAME the trees are compared by that one file, else by
the names, modes and contents of all files except bytecode. Readers see the old tree or the new one:
the copy is made beside DEST and renamed into place.
"""

from __future__ import annotations

import argparse
import compileall
import errno
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

BYTECODE = "__pycache__"


def main(arguments: list[str]) -> int:
    """Publish, and print whether anything changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("--stamp", help="compare this file of the trees, not all of them")
    parser.add_argument("--compile", action="store_true", help="leave bytecode for other users")
    options = parser.parse_args(arguments)
    source, dest = options.source, options.dest
    if not source.is_dir():
        print(f"{source}: no such directory", file=sys.stderr)
        return 1
    if fingerprint(source, options.stamp) == fingerprint(dest, options.stamp):
        print("unchanged")
        return 0
    publish(source, dest, compiled=options.compile)
    print("changed")
    return 0


def fingerprint(tree: Path, stamp: str | None) -> str | None:
    """Return a text that equal trees share; None without a tree or stamp."""
    if stamp:
        path = tree / stamp
        return path.read_text(encoding="utf-8") if path.is_file() else None
    if not tree.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(tree.rglob("*")):
        if BYTECODE in path.parts:
            continue
        name = str(path.relative_to(tree))
        if path.is_symlink():
            digest.update(f"link {name} {path.readlink()}\0".encode())
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            executable = bool(path.stat().st_mode & 0o100)
            digest.update(f"file {name} {executable} {content}\0".encode())
    return digest.hexdigest()


def publish(source: Path, dest: Path, *, compiled: bool) -> None:
    """Replace DEST; delete the incomplete copies of earlier runs."""
    dest.parent.mkdir(parents=True, exist_ok=True)
    fresh = dest.with_name(f".{dest.name}.new")
    stale = dest.with_name(f".{dest.name}.old")
    for leftover in (fresh, stale):
        shutil.rmtree(leftover, ignore_errors=True)
    # cp, not shutil: a training environment has tens of thousands of files.
    subprocess.run(
        ["/usr/bin/cp", "-a", "--no-preserve=ownership", "--reflink=auto", source, fresh],
        check=True,
    )
    for directory, _, _ in os.walk(fresh):
        Path(directory).chmod(0o755)  # the source may be private, the copy must not be
    if compiled:
        compileall.compile_dir(fresh, quiet=2, stripdir=str(fresh), prependdir=str(dest))
    if dest.exists():
        set_aside(dest, stale)
    fresh.rename(dest)
    shutil.rmtree(stale, ignore_errors=True)


def set_aside(tree: Path, stale: Path) -> None:
    """Move a tree out of the way, so that one rename replaces it."""
    try:
        tree.rename(stale)
    except OSError as error:
        # A directory in the lower layer of an overlay can't be renamed.
        if error.errno != errno.EXDEV:
            raise
        shutil.rmtree(tree)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
