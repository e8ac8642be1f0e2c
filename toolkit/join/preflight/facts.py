"""Facts of a site that its preflight checks, as the site answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from toolkit.join.preflight.findings import Origin

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from ipaddress import IPv4Network

    from toolkit.join.site import ConfFile, SiteFacts
    from toolkit.slurm_nodes import NodeInfo

Side = Literal["site", "cloud"]
_UNSET = frozenset({"", "(null)", "n/a", "none"})


@dataclass(frozen=True, slots=True)
class License:
    """A licence that slurmctld counts."""

    name: str
    total: int
    used: int


@dataclass(frozen=True, slots=True)
class SlurmReservation:
    """A Slurm reservation."""

    name: str
    flags: frozenset[str]  # in capitals


@dataclass(frozen=True, slots=True)
class Account:
    """A user's entry in the site's passwd database."""

    name: str
    uid: int
    gid: int
    home: str


@dataclass(frozen=True, slots=True)
class Clock:
    """The controller's clock; None where it gave no answer."""

    synchronized: bool | None = None
    offset_seconds: float | None = None  # from its time server, as chrony says


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the controller. Its default route is 0.0.0.0/0."""

    network: IPv4Network
    device: str
    direct: bool  # on the controller's own network, without a gateway


@dataclass(frozen=True, slots=True)
class Connection:
    """Attempts to connect to a port through the tunnel.

    A refusal comes from the host itself, so it is reached.
    """

    side: Side  # where the attempts began
    host: str
    port: int
    outcome: Literal["open", "refused", "silent", "no-address"]
    seconds: tuple[float, ...] = ()  # of each attempt that was answered

    @property
    def median_seconds(self) -> float | None:
        """Return the median, None without any."""
        ordered = sorted(self.seconds)
        return ordered[len(ordered) // 2] if ordered else None


@dataclass(frozen=True, slots=True)
class PathMtu:
    """The largest packet that a path lets through whole."""

    side: Side
    host: str
    bytes: int | None  # None: no ping of any size was answered
    told: bool = True  # whether a larger one was refused with an answer, and not lost


@dataclass(frozen=True, slots=True)
class Rack:
    """A rack's node, as job scripts find it."""

    host: str
    has_boto3: bool
    missing: tuple[str, ...] = ()  # files that it can't read


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A question without an answer, in the words of its failure."""

    question: str
    reason: str


@dataclass(frozen=True, slots=True)
class PreflightFacts:
    """All facts of a site. A field is None if its question had no answer."""

    site: SiteFacts
    slurmdbd_version: str = ""
    nodes: tuple[NodeInfo, ...] | None = None
    licenses: tuple[License, ...] | None = None
    reservations: tuple[SlurmReservation, ...] | None = None
    federation: str = ""  # its name; "" for a cluster of none
    job_users: tuple[Account, ...] | None = None  # of the queue and of recent jobs
    accounts: Mapping[str, Account] = field(default_factory=dict)  # by name
    files: Mapping[str, ConfFile] = field(default_factory=dict)  # beside slurm.conf, by name
    listening_ports: frozenset[int] | None = None
    routes: tuple[Route, ...] | None = None
    state_filesystem: str = ""  # of StateSaveLocation, such as nfs
    clock: Clock = Clock()
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by name that was asked
    connections: tuple[Connection, ...] = ()
    path_mtus: tuple[PathMtu, ...] = ()
    racks: tuple[Rack, ...] = ()  # those that were named
    unanswered: tuple[Unanswered, ...] = ()

    def value(self, name: str) -> str:
        """Return a setting that slurmctld runs with, "" if it is unset.

        Where slurmctld gave no answer, the files' own is returned.
        """
        key = name.lower()
        text = self.site.running.get(key, self.site.running.get(f"{key}[0]"))
        text = self.site.value(name) if text is None else text
        return "" if text.lower() in _UNSET else text

    def words(self, name: str) -> tuple[str, ...]:
        """Return the members of a list."""
        return tuple(word.strip() for word in self.value(name).split(",") if word.strip())

    def parameter(self, name: str, word: str) -> str | None:
        """Return a word's value in a list, None without the word."""
        for member in self.words(name):
            key, _, value = member.partition("=")
            if key.lower() == word.lower():
                return value
        return None

    def number(self, name: str) -> int | None:
        """Return a setting's first number, None without one."""
        text = self.value(name).split(" ")[0].strip()
        return int(text) if text.isascii() and text.isdecimal() else None

    def line_with(self, name: str, *, add: Sequence[str] = (), remove: Collection[str] = ()) -> str:
        """Return a list's whole line with words more and words less."""
        kept = [word for word in self.words(name) if word.partition("=")[0].lower() not in remove]
        present = {word.partition("=")[0].lower() for word in kept}
        words = [*kept, *(word for word in add if word.lower() not in present)]
        return f"{name}={','.join(words)}" if words else f"# {name}"

    def origin(self, name: str) -> Origin:
        """Return the line of a setting, or the command that shows it."""
        setting = self.site.settings.get(name.lower())
        if setting is not None:
            return Origin(setting.place.file, setting.place.line)
        return Origin(f"scontrol show config: {name}")
