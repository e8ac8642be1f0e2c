"""The action `write_files`: files and folders on this instance, all of a task at once.

Ansible starts a program for each file of `file`, and two for `copy` and `template`. Each costs
0.3 s of CPU. Each instance configures itself (inventory.yml), so this action needs no program.

An entry of `files` has one of these:

- `directory`: the path of a folder.
- `absent`: the path of a file that must not be there.
- `source` or `template`: a file of the role's folder files or templates, or an absolute path.
- `content`: the text itself.

`dest` is the path of the file; after a slash at its end comes the file's own name, without .j2.
Folders above it that are missing are made. `owner` and `group` are root, `mode` is 0644, and
0755 for a folder, where an entry has none. The result has `paths`, those that changed.
"""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader

PATHS = frozenset({"directory", "absent"})  # the others have a `dest`
KINDS = PATHS | {"source", "template", "content"}
KEYS = KINDS | {"dest", "owner", "group", "mode"}


def kind_of(entry: dict[str, Any]) -> str:
    """Return what the entry is made of. Raises AnsibleActionFail."""
    kinds = KINDS & entry.keys()
    if len(kinds) != 1 or entry.keys() - KEYS or bool(PATHS & kinds) == ("dest" in entry):
        raise AnsibleActionFail(f"write_files: not an entry: {entry}")
    if "mode" in entry and not isinstance(entry["mode"], str):
        raise AnsibleActionFail(f"write_files: the mode must be quoted: {entry}")
    (kind,) = kinds
    return kind


def path_of(entry: dict[str, Any], kind: str) -> Path:
    """Return the path that the entry writes. Raises AnsibleActionFail."""
    path = str(entry[kind if kind in PATHS else "dest"])
    if path.endswith("/") and kind in {"source", "template"}:
        path += Path(entry[kind]).name.removesuffix(".j2" if kind == "template" else "")
    if not path.startswith("/") or path.endswith("/"):
        raise AnsibleActionFail(f"write_files: not the absolute path of a file: {path!r}")
    return Path(path)


def give(path: Path, entry: dict[str, Any], mode: str) -> bool:
    """Give the path the entry's owner, group and mode; return whether it had others."""
    found = path.stat()
    owner = pwd.getpwnam(entry.get("owner", "root")).pw_uid
    group = grp.getgrnam(entry.get("group", "root")).gr_gid
    bits = int(entry.get("mode", mode), 8)
    changed = (found.st_uid, found.st_gid, found.st_mode & 0o7777) != (owner, group, bits)
    if changed:
        os.chown(path, owner, group)
        path.chmod(bits)
    return changed


def make_folder(path: Path, entry: dict[str, Any]) -> bool:
    """Make the folder and those above it; return whether anything changed."""
    is_new = not path.is_dir()
    if is_new:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    return give(path, entry, "0755") or is_new


def write(path: Path, content: bytes, entry: dict[str, Any]) -> bool:
    """Bring the file to this content; return whether anything changed.

    A reader finds the old file or the new one, and never a part.
    """
    if path.is_file() and not path.is_symlink() and path.read_bytes() == content:
        return give(path, entry, "0644")
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600, exist_ok=False)
    new.write_bytes(content)
    give(new, entry, "0644")
    new.replace(path)
    return True


class ActionModule(ActionBase):
    """Ansible finds the action by this class."""

    _supports_check_mode = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> Any:
        """Write the files, in their order."""
        result = super().run(tmp, task_vars)
        if self._connection.transport != "local":
            raise AnsibleActionFail("write_files: it writes on this instance alone")
        paths = [
            str(path)
            for entry in self._task.args["files"]
            for path, changed in [self._placed(entry, task_vars or {})]
            if changed
        ]
        return result | {"changed": bool(paths), "paths": paths}

    def _placed(self, entry: dict[str, Any], variables: dict[str, Any]) -> tuple[Path, bool]:
        kind = kind_of(entry)
        path = path_of(entry, kind)
        if kind == "directory":
            return path, make_folder(path, entry)
        if kind == "absent":
            was_there = path.exists()
            path.unlink(missing_ok=True)
            return path, was_there
        return path, write(path, self._content(entry, kind, variables), entry)

    def _content(self, entry: dict[str, Any], kind: str, variables: dict[str, Any]) -> bytes:
        if kind == "content":
            return str(entry["content"]).encode()
        if kind == "source":
            return Path(self._find_needle("files", entry["source"])).read_bytes()
        lookup = lookup_loader.get(
            "ansible.builtin.template", loader=self._loader, templar=self._templar
        )
        places = {"ansible_search_path": self._task.get_search_path()}
        (text,) = lookup.run([entry["template"]], variables=variables | places)
        return str(text).encode()
