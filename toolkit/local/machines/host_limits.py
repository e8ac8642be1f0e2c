"""Limits of the host's kernel that all machines share."""

from __future__ import annotations

from pathlib import Path

INOTIFY_INSTANCES = 1024
"""inotify instances for root, enough for some 200 machines.

systemd in each machine needs about four, and the kernel's own limit is 128 (inotify(7)). Without
one, systemd ends at once, and EC2 shows `Client.InstanceInitiatedShutdown`.
"""


def raise_inotify_limit(proc: Path = Path("/proc")) -> None:
    """Raise the limit of inotify instances to what machines need.

    It is never lowered again, since another local cloud may rely on it; a reboot ends it. A host
    that does not allow the change keeps its own limit. May be repeated.
    """
    path = proc / "sys/fs/inotify/max_user_instances"
    try:
        if int(path.read_text()) < INOTIFY_INSTANCES:
            path.write_text(f"{INOTIFY_INSTANCES}\n")
    except (OSError, ValueError):
        return
