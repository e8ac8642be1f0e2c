"""Bring the head's accounts and SSH keys to cluster.yaml; the playbook's role `users` runs this.

Standard input is JSON: `users`, `ssh_keys` by the user's name, and `login_nodes`. The answer is
`changed` or `unchanged`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from slurmplugins.config import paths
from slurmplugins.errors import EngineError
from slurmplugins.head import set_users
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner


def main() -> None:
    head = set_users.HeadUsers(paths.SHARED, Path("/"), SystemRunner(), SystemClock())
    try:
        changed = head.apply(set_users.parse(sys.stdin.read()))
    except (EngineError, OSError) as error:
        raise SystemExit(f"slurm-users: {error}") from error
    sys.stdout.write("changed\n" if changed else "unchanged\n")


if __name__ == "__main__":
    main()
