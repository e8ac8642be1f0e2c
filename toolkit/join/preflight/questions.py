"""Asks a site the preflight's questions. Each is a read by argv, with a time limit."""

from __future__ import annotations

import posixpath
import time
from ipaddress import AddressValueError, IPv4Address
from typing import TYPE_CHECKING, Final, TypeVar

from toolkit.errors import ToolkitError
from toolkit.join.errors import SiteCommandFailed
from toolkit.join.preflight import answers
from toolkit.join.preflight.facts import Account, Clock, PreflightFacts, Unanswered
from toolkit.join.site import ConfFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.site import SiteFacts, SiteRunner

T = TypeVar("T")

SYSTEM: Final = ("/usr/bin/env", "LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
"""Distributions differ in the folder of `ss` and `ip`, and sshd's PATH in what it has."""
SECONDS: Final = 30
MOST_SECONDS: Final = 300
"""For all questions together: a controller that hangs must not hold a person for each of them."""
SACCT_SECONDS: Final = 120
RECENT: Final = "now-7days"
MOST_UIDS: Final = 500
"""Job users are asked for in one call, far below the kernel's limit of arguments."""
FILES: Final = ("gres.conf", "cgroup.conf", "topology.conf", "topology.yaml", "plugstack.conf")
# json.loads raises RecursionError for a thousand brackets, int() OverflowError for infinity.
ODD_ANSWERS: Final = (
    ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip


class Questions:
    """The questions to one site. One that fails is noted, and the others go on."""

    def __init__(
        self,
        runner: SiteRunner,
        site: SiteFacts,
        *,
        slurm_bin: str = "/usr/bin",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._site = site
        self._bin = slurm_bin
        self._clock = clock
        self._deadline = clock() + MOST_SECONDS
        self.unanswered: list[Unanswered] = []

    def ask(self, cloud: CloudSide) -> PreflightFacts:
        """Return all facts, without those of connections."""
        base = PreflightFacts(self._site)
        accounts = self._answer(answers.passwd, "getent", "passwd") or {}
        return PreflightFacts(
            site=self._site,
            slurmdbd_version=self._slurmdbd_version(base),
            nodes=self._slurm(answers.nodes, "scontrol", "show", "nodes", "--json"),
            licenses=self._slurm(answers.licenses, "scontrol", "show", "licenses", "--json"),
            reservations=self._slurm(
                answers.reservations, "scontrol", "show", "reservations", "--json"
            ),
            federation=self._slurm(answers.federation, "scontrol", "show", "federation") or "",
            job_users=self._job_users(base),
            accounts=accounts,
            files=self._files(),
            listening_ports=self._answer(answers.listening_ports, "ss", "-H", "-l", "-t", "-n"),
            routes=self._answer(answers.routes, "ip", "-json", "-4", "route", "show"),
            state_filesystem=self._filesystem(base.value("StateSaveLocation")),
            clock=self._controller_clock(),
            addresses=self._addresses(cloud),
            unanswered=tuple(self.unanswered),
        )

    def _slurm(self, read: Callable[[str], T], command: str, *argv: str) -> T | None:
        return self._answer(read, posixpath.join(self._bin, command), *argv)

    def _answer(
        self, read: Callable[[str], T], *argv: str, seconds: float = SECONDS, quiet: bool = False
    ) -> T | None:
        """Return a command's answer; None, and a note, where there is none."""
        question = " ".join([posixpath.basename(argv[0]), *argv[1:]])
        left = self._deadline - self._clock()
        try:
            if left <= 0:
                raise SiteCommandFailed(f"not asked: the site took over {MOST_SECONDS} s")
            return read(self._run(argv, min(seconds, left)))
        except ToolkitError as error:
            reason = str(error)
        except ODD_ANSWERS as error:
            reason = f"an answer of another shape: {error}"
        if not quiet:
            self.unanswered.append(Unanswered(question[:200], " ".join(reason.split())[:300]))
        return None

    def _run(self, argv: Sequence[str], seconds: float) -> str:
        words = argv if argv[0].startswith("/") else (*SYSTEM, *argv)
        return self._runner.run(words, timeout=seconds)

    def _slurmdbd_version(self, base: PreflightFacts) -> str:
        if base.value("AccountingStorageType") != "accounting_storage/slurmdbd":
            return ""
        return self._slurm(answers.slurmdbd_version, "sacctmgr", "show", "config") or ""

    def _job_users(self, base: PreflightFacts) -> tuple[Account, ...] | None:
        """Return the accounts of users who have jobs, or had some lately.

        A directory may not list all of its users, so each is asked for by its uid.
        """
        queued = self._slurm(answers.uids, "squeue", "--noheader", "--states=all", "--format=%U")
        found = set(queued or ())
        if base.value("AccountingStorageType") == "accounting_storage/slurmdbd":
            argv = ("--allusers", "--allocations", "--noheader", "--parsable2", "--format=UID")
            sacct = posixpath.join(self._bin, "sacct")
            recent = self._answer(
                answers.uids, sacct, *argv, f"--starttime={RECENT}", seconds=SACCT_SECONDS
            )
            found |= recent or frozenset()
            queued = queued if recent is None else recent
        if queued is None:
            return None
        uids = sorted(found)[:MOST_UIDS]
        if not uids:
            return ()
        by_name = self._lookup(uids)
        known = {account.uid: account for account in by_name.values()}
        return tuple(known.get(uid, Account("", uid, uid, "")) for uid in uids)

    def _lookup(self, uids: Iterable[int]) -> dict[str, Account]:
        """Ask for accounts by uid.

        getent exits 2 if one of them is missing, and prints the others.
        """
        try:
            text = self._run(("getent", "passwd", *map(str, uids)), SECONDS)
        except ToolkitError as error:
            text = str(getattr(error, "stdout", ""))
        return answers.passwd(text)

    def _files(self) -> dict[str, ConfFile]:
        """Read the files beside slurm.conf. One that is missing is no fault."""
        files: dict[str, ConfFile] = {}
        for name in FILES:
            path = posixpath.join(self._site.folder, name)
            text = self._answer(str, "cat", "--", path, quiet=True)
            if text is not None:
                files[name] = ConfFile(path, text)
        return files

    def _filesystem(self, path: str) -> str:
        if not path.startswith("/"):
            return ""
        return (self._answer(str, "stat", "-f", "-c", "%T", "--", path) or "").strip()

    def _controller_clock(self) -> Clock:
        """Ask chrony, and systemd where there is none."""
        clock = self._answer(answers.chrony, "chronyc", "-c", "tracking", quiet=True)
        return clock or self._answer(answers.timedatectl, "timedatectl", "show") or Clock()

    def _addresses(self, cloud: CloudSide) -> Mapping[str, tuple[str, ...]]:
        """Ask the site's resolver for its controllers and for our first node."""
        names = [item.host for item in self._site.controllers]
        names += cloud.nodes[:1]
        found: dict[str, tuple[str, ...]] = {}
        for name in dict.fromkeys(names):
            if _is_address(name) or name.startswith("-"):
                continue
            listed = self._answer(answers.addresses, "getent", "ahostsv4", name, quiet=True)
            found[name] = listed or ()
        return found


def _is_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
