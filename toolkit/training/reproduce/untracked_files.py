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
MAX_FILES = 200
# The bytes that are read and hashed, of one file and of all. Of a larger file the size is kept.
MAX_FILE_BYTES, MAX_TOTAL_BYTES = 1 << 20, 16 << 20

_MAX_NAME_BYTES = 512
_TIMEOUT = 5
# Settings with such names are not hashed. The record goes to the tracking server, and the hash of
# a short secret gives the secret away.
_SECRET = re.compile(r"token(?!iz)|secret|passw|credential|key", re.IGNORECASE)
_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Untracked:
    """The untracked files at one moment."""

    marks: Mapping[str, str] = field(default_factory=dict)  # of their contents, by path from `base`
    complete: bool = False  # True if no file that counts is left out


def base(root: str, script: str) -> Path:
    """Return the folder from which their paths are relative.

    It is the checkout, or the script's folder without one.
    """
    return Path(root) if root else Path(script).parent


def list_untracked(code: Code, run_dir: Path) -> Untracked:
    """Return the files as they are now.

    The files nearest to the script come first. Files that runs have written are left out.
    """
    root = base(code.root, code.script)
    names = _untracked_in_git(root) if code.root else _imported_modules(root)
    if names is None:
        return Untracked()
    script_folder = Path(os.path.relpath(code.script, root)).parent
    runs = run_dir if Path(code.script).is_relative_to(run_dir.parent) else run_dir.parent
    names = [name for name in names if not (root / name).is_relative_to(runs)]
    names.sort(
        key=lambda name: (not Path(name).is_relative_to(script_folder), name.count("/"), name)
    )
    recorded_names = [name for name in names if len(os.fsencode(name)) <= _MAX_NAME_BYTES][
        :MAX_FILES
    ]
    marks: dict[str, str] = {}
    bytes_left = MAX_TOTAL_BYTES
    for name in recorded_names:
        mark_and_size = _mark(root / name, bytes_left)
        if mark_and_size is not None:
            marks[name], size = mark_and_size
            bytes_left -= size
    return Untracked(marks, complete=bool(code.root) and len(recorded_names) == len(names))


def changed_files(root: Path, marks: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the files that changed or no longer exist, with the change."""
    for name, mark in marks.items():
        current = _mark(root / name, MAX_TOTAL_BYTES if mark.startswith("sha256:") else 0)
        if current is None:
            yield name, "no longer exists"
        elif current[0] != mark:
            yield name, "has another content"


def shorten(sentences: Iterable[str]) -> list[str]:
    """Return the first few sentences, and the number of the others."""
    all_sentences = list(sentences)
    hidden_count = len(all_sentences) - _MAX_SHOWN
    rest = [f"and {hidden_count} more files"] if hidden_count > 0 else []
    return [*all_sentences[:_MAX_SHOWN], *rest]


def _mark(path: Path, bytes_left: int) -> tuple[str, int] | None:
    """Return a mark of the content, and the number of bytes read.

    None when there is no such file.
    """
    try:
        if not path.is_file():
            return None
        if path.suffix in SETTINGS and _SECRET.search(path.name):
            return "not looked at", 0
        size = path.stat().st_size
        if size > min(bytes_left, MAX_FILE_BYTES):
            return f"bytes:{size}", 0
        return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}", size
    except OSError:
        return None


def _untracked_in_git(root: Path) -> list[str] | None:
    kinds = [f"*{kind}" for kind in (*CODE, *SETTINGS)]
    arguments = ("ls-files", "--others", "--exclude-standard", "-z", "--", *kinds)
    output = git_commit.git(root, *arguments, timeout=_TIMEOUT)
    return None if output is None else [os.fsdecode(name) for name in output.split(b"\0")[:-1]]


def _imported_modules(folder: Path) -> list[str]:
    """Return the folder's modules that this process has imported.

    Other files in the folder may be anything.
    """
    library = str(Path(os.__file__).parent)
    names = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("__file__")  # a lazy module loads for getattr
        if not isinstance(file, str) or "site-packages" in file or file.startswith(library):
            continue
        path = Path(os.path.realpath(file))
        if path.suffix in CODE and path.is_relative_to(folder):
            names.add(str(path.relative_to(folder)))
    return list(names)
