"""Record files that a run's code may read and git does not know, by name and hash.

A later look finds the changed ones. In a checkout they are all files that are code or settings by
their names. Other files, such as logs and results, differ at every look. Without a checkout they
are the modules that were imported.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolkit.training.reproduce import git_commit
from toolkit.training.reproduce.git_commit import Code

CODE = (".py", ".pyx", ".so", ".sh")
SETTINGS = (".json", ".toml", ".yaml", ".yml", ".cfg", ".ini")
FILES = 200
# The bytes that are read and hashed, of one file and of all. Of a larger file the size is kept.
FILE_BYTES, ALL_BYTES = 1 << 20, 16 << 20

_NAME_BYTES = 512
_TIMEOUT = 5
# Settings with such names are not hashed. The record goes to the tracking server, and the hash of
# a short secret gives the secret away.
_SECRET = re.compile(r"token(?!iz)|secret|passw|credential|key", re.IGNORECASE)
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Untracked:
    """The untracked files at one moment."""

    marks: Mapping[str, str] = field(default_factory=dict)  # of their contents, by path from `base`
    whole: bool = False  # True if no file that counts is left out


def base(root: str, script: str) -> Path:
    """Return the folder from which their paths are relative.

    It is the checkout, or the script's folder without one.
    """
    return Path(root) if root else Path(script).parent


def look(code: Code, run_dir: Path) -> Untracked:
    """Return the files as they are now.

    The files nearest to the script come first. Files that runs have written are left out.
    """
    place = base(code.root, code.script)
    names = _in_git(place) if code.root else _imported(place)
    if names is None:
        return Untracked()
    near = Path(os.path.relpath(code.script, place)).parent
    runs = run_dir if Path(code.script).is_relative_to(run_dir.parent) else run_dir.parent
    names = [name for name in names if not (place / name).is_relative_to(runs)]
    names.sort(key=lambda name: (not Path(name).is_relative_to(near), name.count("/"), name))
    found = [name for name in names if len(os.fsencode(name)) <= _NAME_BYTES][:FILES]
    marks: dict[str, str] = {}
    room = ALL_BYTES
    for name in found:
        made = _mark(place / name, room)
        if made is not None:
            marks[name], read = made
            room -= read
    return Untracked(marks, whole=bool(code.root) and len(found) == len(names))


def changed(place: Path, marks: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the files that changed or are gone, with the change."""
    for name, mark in marks.items():
        now = _mark(place / name, ALL_BYTES if mark.startswith("sha256:") else 0)
        if now is None:
            yield name, "is gone"
        elif now[0] != mark:
            yield name, "has another content"


def said(sentences: Iterable[str]) -> list[str]:
    """Return the first few sentences, and the number of the others."""
    listed = list(sentences)
    more = len(listed) - _SHOWN
    return [*listed[:_SHOWN], *([f"and {more} more files"] if more > 0 else [])]


def _mark(path: Path, room: int) -> tuple[str, int] | None:
    """Return a mark of the content, and the number of bytes read.

    None when there is no such file.
    """
    try:
        if not path.is_file():
            return None
        if path.suffix in SETTINGS and _SECRET.search(path.name):
            return "not looked at", 0
        size = path.stat().st_size
        if size > min(room, FILE_BYTES):
            return f"bytes:{size}", 0
        return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}", size
    except OSError:
        return None


def _in_git(root: Path) -> list[str] | None:
    kinds = [f"*{kind}" for kind in (*CODE, *SETTINGS)]
    words = ("ls-files", "--others", "--exclude-standard", "-z", "--", *kinds)
    listed = git_commit.git(root, *words, timeout=_TIMEOUT)
    return None if listed is None else [os.fsdecode(name) for name in listed.split(b"\0")[:-1]]


def _imported(folder: Path) -> list[str]:
    """Return the folder's modules that this process has imported.

    Other files in the folder may be anything.
    """
    library = str(Path(os.__file__).parent)
    found = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("__file__")  # a lazy module loads for getattr
        if not isinstance(file, str) or "site-packages" in file or file.startswith(library):
            continue
        path = Path(os.path.realpath(file))
        if path.suffix in CODE and path.is_relative_to(folder):
            found.add(str(path.relative_to(folder)))
    return list(found)
