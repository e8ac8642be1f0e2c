"""Run a server's program on a head node where ada and ben have accounts.

serve_with_users.py PROGRAM ARGUMENT...

The uids are those of real processes. Only their names are given here, for this host knows no ada.

At SIGUSR2, MLflow's server writes into the file $NAMES what its rules name and this MLflow lacks.
"""

import json
import os
import pwd
import runpy
import signal
import sys
from pathlib import Path

USERS = {2001: "ada", 2002: "ben"}
accounts_of_host = pwd.getpwuid


def getpwuid(uid):
    if uid in USERS:
        return pwd.struct_passwd((USERS[uid], "x", uid, uid, "", "/", "/bin/sh"))
    return accounts_of_host(uid)


def write_unknown_names(*_):
    """Write the unknown views, methods of stores, and reads that write."""
    import owned_stores
    import serve
    from mlflow.server import app
    from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore as Registry
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore as Tracking

    views = serve.READS_BY_POST | serve.WRITES | serve.ARTIFACT_WRITES | {"serve_upload_artifact"}
    unknown = (
        views - set(app.view_functions),
        set(owned_stores.RULES) - {*dir(Tracking), *dir(Registry)},
        owned_stores.WRITES_THAT_GET - set(dir(Tracking)),
    )
    place = Path(os.environ["NAMES"])
    place.with_suffix(".new").write_text(json.dumps([sorted(names) for names in unknown]))
    place.with_suffix(".new").replace(place)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, write_unknown_names)
    pwd.getpwuid = getpwuid
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
