"""The program that puts our files on a controller, as it is called there."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = (Path(__file__).parents[3] / "toolkit/join/put_files.py").read_text()
SELF = f"{os.getuid()}:{os.getgid()}"


def put(*before, **request):
    """Call it, after some words, and return what changed."""
    whole = {"files": [], "folders": [], "trees": [], "absent": []} | request
    done = subprocess.run(
        [*before, sys.executable, "-I", "-c", SOURCE],
        input=json.dumps(whole).encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr.decode())
    return json.loads(done.stdout)


def file(path, text, **more):
    content = base64.b64encode(text.encode()).decode()
    return {"path": str(path), "base64": content, "mode": 0o640, "owner": SELF} | more


def test_a_file_is_written_once(tmp_path):
    path = tmp_path / "new/file"
    assert put(files=[file(path, "a")]) == [str(path)]
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("a", 0o640)
    assert put(files=[file(path, "a")]) == []
    assert [item.name for item in path.parent.iterdir()] == ["file"]


def test_a_file_of_the_site_keeps_its_mode_and_its_link(tmp_path):
    target = tmp_path / "real.conf"
    target.write_text("before")
    target.chmod(0o604)
    link = tmp_path / "slurm.conf"
    link.symlink_to(target)
    was = hashlib.sha256(b"before").hexdigest()
    put(files=[file(link, "after", mode=None, was=was)])
    assert link.is_symlink()
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("after", 0o604)


def test_what_somebody_else_wrote_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "slurm.conf"
    path.write_text("theirs")
    with pytest.raises(ValueError, match="changed by somebody else"):
        put(files=[file(path, "ours", was=hashlib.sha256(b"before").hexdigest())])
    assert path.read_text() == "theirs"
    with pytest.raises(ValueError, match="changed by somebody else"):
        put(files=[file(path, "ours", was="")])


def test_a_file_of_the_site_keeps_its_attributes(tmp_path):
    path = tmp_path / "slurm.conf"
    path.write_text("before")
    os.setxattr(path, "user.site", b"its own")
    was = hashlib.sha256(b"before").hexdigest()
    put(files=[file(path, "after", mode=None, was=was)])
    assert (path.read_text(), os.getxattr(path, "user.site")) == ("after", b"its own")


def test_on_a_full_disk_a_file_stays_as_it_was(tmp_path):
    path = tmp_path / "slurm.conf"
    path.write_text("before")
    small = ["/usr/bin/prlimit", "--fsize=3"]
    with pytest.raises(ValueError, match=r"^\S*/slurm.conf stays as it was, and can't be written"):
        put(*small, files=[file(path, "after that", mode=None)])
    assert [(item.name, item.read_text()) for item in tmp_path.iterdir()] == [
        ("slurm.conf", "before")
    ]


def test_a_tree_has_what_is_listed_and_no_more(tmp_path):
    tree = tmp_path / "lib"
    (tree / "old").mkdir(parents=True)
    (tree / "old/module.py").write_text("")
    kept = tree / "module.py"
    assert put(files=[file(kept, "x")], trees=[str(tree)]) == [
        str(kept),
        str(tree / "old/module.py"),
    ]
    assert put(files=[file(kept, "x")], trees=[str(tree)]) == []


def test_what_should_be_absent_is_deleted_and_a_link_is_not_followed(tmp_path):
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    paths = [str(folder), str(link), str(tmp_path / "none")]
    assert put(absent=paths) == paths[:2]
    assert list(tmp_path.iterdir()) == []
