"""Facts about processes, read from /proc."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_START_FIELD = 19  # of /proc/PID/stat, counted from the state; proc_pid_stat(5) counts 22


@dataclass(frozen=True, slots=True)
class Processes:
    """A view of /proc; `root` is another directory in tests."""

    root: Path = _PROC

    def is_init(self, pid: int) -> bool:
        """Say whether the process is PID 1 of a namespace below ours."""
        for line in self._status(pid):
            if line.startswith("NSpid:"):
                numbers = line.split()[1:]
                return len(numbers) > 1 and numbers[-1] == "1"
        return False

    def is_alive(self, pid: int) -> bool:
        """Say whether the process exists and is more than a zombie."""
        state = next((line for line in self._status(pid) if line.startswith("State:")), "")
        return bool(state) and state.split()[1] not in {"Z", "X"}

    def started_at(self, pid: int) -> str | None:
        """Return a living process's start, in the kernel's ticks since boot.

        A pid that is given again belongs to a process with another start.
        """
        try:
            text = (self.root / str(pid) / "stat").read_text()
        except OSError:
            return None
        # The name before the last bracket may hold spaces and brackets.
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in {"Z", "X"} else fields[_START_FIELD]

    def nspawns_under(self, directory: Path) -> tuple[tuple[int, str], ...]:
        """Return (pid, path below `directory`) of every systemd-nspawn with its root there.

        The command line is the one thing that tells a launcher whose control
        group has been lost.
        """
        launchers: list[tuple[int, str]] = []
        prefix = f"--directory={directory}/"
        for entry in self.root.iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:  # it ended while we looked
                continue
            if Path(words[0]).name != "systemd-nspawn":
                continue
            launchers.extend(
                (int(entry.name), word.removeprefix(prefix))
                for word in words
                if word.startswith(prefix)
            )
        return tuple(launchers)

    def children(self, pid: int) -> tuple[int, ...]:
        """Return the ids of the process's children."""
        try:
            text = (self.root / str(pid) / "task" / str(pid) / "children").read_text()
        except OSError:
            return ()
        return tuple(int(word) for word in text.split())

    def has_mounted(self, pid: int, device: tuple[int, int]) -> bool:
        """Say whether the process sees a filesystem of the block device."""
        number = f"{device[0]}:{device[1]}"
        try:
            lines = (self.root / str(pid) / "mountinfo").read_text().splitlines()
        except OSError:
            return False
        return any(line.split()[2] == number for line in lines)

    def _status(self, pid: int) -> list[str]:
        try:
            return (self.root / str(pid) / "status").read_text().splitlines()
        except OSError:
            return []
