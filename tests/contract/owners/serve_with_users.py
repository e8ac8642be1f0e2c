"""Run a server's program on a head node where ada and ben have accounts.

serve_with_users.py PROGRAM ARGUMENT...

The uids are those of real processes. Only their names are given here, for this host knows no ada.
"""

import pwd
import runpy
import sys
from pathlib import Path

USERS = {2001: "ada", 2002: "ben"}
accounts_of_host = pwd.getpwuid


def getpwuid(uid):
    if uid in USERS:
        return pwd.struct_passwd((USERS[uid], "x", uid, uid, "", "/", "/bin/sh"))
    return accounts_of_host(uid)


if __name__ == "__main__":
    pwd.getpwuid = getpwuid
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
