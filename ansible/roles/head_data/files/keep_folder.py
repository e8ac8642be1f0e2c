"""Keep a folder on the data volume, owned by its service's user of this instance.

keep_folder.py SOURCE DEST OWNER

Where DEST is missing, it begins as a copy of SOURCE. Where SOURCE is no folder, DEST begins empty. The
copy gets its name only when it is whole. A newer image may have given OWNER another uid: then all of DEST gets it.
Prints `changed` or `unchanged`.
"""

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    source, dest, owner = Path(argv[0]), Path(argv[1]), pwd.getpwnam(argv[2])
    changed = not dest.exists()
    if changed:
        copy(source, dest)
    if dest.stat().st_uid != owner.pw_uid:
        give(dest, owner.pw_uid, owner.pw_gid)
        changed = True
    print("changed" if changed else "unchanged")
    return 0


def copy(source: Path, dest: Path) -> None:
    """Make DEST at once or not at all."""
    new = dest.with_name(f"{dest.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    if source.is_dir():
        argv = ["/usr/bin/cp", "--archive", "--", str(source), str(new)]
        subprocess.run(argv, check=True)
    else:
        new.mkdir(mode=0o700)
    os.sync()
    new.rename(dest)


def give(folder: Path, uid: int, gid: int) -> None:
    """Give a folder and all in it to a user; the folder itself last."""
    for path in sorted(folder.rglob("*"), reverse=True):
        os.chown(path, uid, gid, follow_symlinks=False)
    os.chown(folder, uid, gid)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
