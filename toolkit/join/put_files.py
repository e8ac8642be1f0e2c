"""Put files in place on a controller; runs there, as `python3 -I -c SOURCE` with JSON on stdin.

It imports nothing of ours. Each file appears whole or not at all, and one that is right already is
not touched. Prints the paths that changed, as JSON. The request has four lists:

- files: each with `path`, `base64`, `mode` and `owner` (USER:GROUP, names or numbers). A file
  without a mode keeps its own, and its owner. With `was`, the file is replaced only if its SHA-256
  is that ("" for no file): somebody else may have written it meanwhile.
- folders: each with `path`, `mode` and `owner`.
- trees: paths below which everything that is not in `files` is deleted.
- absent: paths of files and folders to delete.
"""

from __future__ import annotations

import base64
import contextlib
import grp
import hashlib
import json
import os
import pwd
import shutil
import stat
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Do what standard input says."""
    request = json.load(sys.stdin)
    for folder in request["folders"]:
        path = Path(folder["path"])
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, *_ids(folder["owner"]))
        path.chmod(folder["mode"])
    changed = [item["path"] for item in request["files"] if _put(item)]
    wanted = {item["path"] for item in request["files"]}
    for tree in request["trees"]:
        changed += _prune(Path(tree), wanted)
    changed += [path for path in request["absent"] if _remove(Path(path))]
    json.dump(changed, sys.stdout)


def _put(item: dict[str, Any]) -> bool:
    """Write a file if it differs; return whether it did."""
    path, content = Path(item["path"]).resolve(), base64.b64decode(item["base64"])
    old = path.read_bytes() if path.exists() else None
    if "was" in item and old != content:
        found = "" if old is None else hashlib.sha256(old).hexdigest()
        if found != item["was"]:
            sys.exit(f"{path} was changed by somebody else meanwhile: run this again")
    path.parent.mkdir(parents=True, exist_ok=True)
    status = path.stat() if old is not None else None
    present = None
    if status is not None:
        present = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
    wanted = (item["mode"], *_ids(item["owner"]))
    if item["mode"] is None:
        wanted = present or (0o644, 0, 0)
    if old == content and present == wanted:
        return False
    draft = path.with_name(f"{path.name}.toolkit-new")
    try:
        _write(draft, content, wanted)
        if item["mode"] is None and old is not None:
            _copy_attributes(path, draft)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        sys.exit(f"{path} stays as it was, and can't be written: {error.strerror}")
    return True


def _write(path: Path, content: bytes, wanted: tuple[int, ...]) -> None:
    """Write a file of this mode and owner to the disk."""
    mode, *ids = wanted
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.chown(path, *ids)
    path.chmod(mode)


def _copy_attributes(old: Path, new: Path) -> None:
    """Give a file the access list and SELinux label of another.

    A filesystem that has no such attributes says so by an error.
    """
    with contextlib.suppress(OSError):
        for name in os.listxattr(old):
            with contextlib.suppress(OSError):
                os.setxattr(new, name, os.getxattr(old, name))


def _ids(owner: str) -> tuple[int, int]:
    """Return the ids of `USER:GROUP`."""
    user, _, group = owner.partition(":")
    return (
        int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid,
        int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid,
    )


def _prune(tree: Path, wanted: set[str]) -> list[str]:
    """Delete what should not be in a tree; return the paths."""
    gone = []
    for path in sorted(tree.rglob("*")):
        if path.is_file() and str(path) not in wanted and path.suffix != ".pyc":
            path.unlink()
            gone.append(str(path))
    return gone


def _remove(path: Path) -> bool:
    """Delete a file or a folder; return whether it was there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return True
    if not (path.exists() or path.is_symlink()):
        return False
    path.unlink()
    return True


if __name__ == "__main__":
    main()
