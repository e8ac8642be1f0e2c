"""The facts of a site: what its slurm.conf says, file by file, and what slurmctld runs with.

Everything here is read and never written. Names in it are another administrator's.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Protocol

from slurmplugins.slurm.controllers import parse_ping
from toolkit.errors import HeadCommandFailed
from toolkit.join.errors import SiteUnreadable
from toolkit.join.hostlists import expanded
from toolkit.lint.slurm_conf.parser import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmplugins.slurm.controllers import Controller
    from toolkit.head_runner import Runner

SLURM_CONF: Final = "/etc/slurm/slurm.conf"
GRES_CONF: Final = "gres.conf"
DEFAULT_PORT: Final = 6817
MAX_INCLUDES: Final = 200
"""A file that includes itself would be read for ever."""
_ROW: Final = re.compile(r"(\S[^=]*?)\s*= ?(.*)")
_HOST_ROW: Final = re.compile(r"slurmctldhost\[(\d+)\]")
_HOST: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\(([A-Za-z0-9._:-]+)\))?")
_VERSION: Final = re.compile(r"slurm\S* (\d{2}\.\d{2}\.\d+\S*)")


class SiteRunner(Protocol):
    """A way to run commands as root on the site's controller."""

    def run(self, argv: Sequence[str], *, timeout: float = 60, stdin: bytes = b"") -> str:
        """Run one argv and return its standard output.

        Raises SiteCommandFailed for any exit code but 0.
        """
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """A line of one of the site's files."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class ConfFile:
    """slurm.conf, or a file that it includes."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class SiteSetting:
    """A global setting, as the site writes it."""

    name: str
    value: str
    place: Place

    @property
    def words(self) -> tuple[str, ...]:
        """Return the members of a list."""
        return tuple(word.strip() for word in self.value.split(",") if word.strip())


@dataclass(frozen=True, slots=True)
class SiteNodes:
    """A NodeName line."""

    names: tuple[str, ...]
    values: Mapping[str, str]  # keys in lower case
    place: Place


@dataclass(frozen=True, slots=True)
class SitePartition:
    """A PartitionName line."""

    name: str
    values: Mapping[str, str]  # keys in lower case
    place: Place


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """A site as its files and its slurmctld describe it."""

    slurm_conf: str  # its path
    files: tuple[ConfFile, ...]  # slurm.conf first, then what it includes, in order
    settings: Mapping[str, SiteSetting]  # by name in lower case; the last of two counts
    nodes: tuple[SiteNodes, ...]
    partitions: tuple[SitePartition, ...]
    node_defaults: tuple[SiteNodes, ...] = ()  # lines NodeName=DEFAULT, which hold for ours too
    version: str = ""  # slurmctld's, such as 24.11.5
    running: Mapping[str, str] = field(default_factory=dict)  # show config, keys in lower case
    controllers: tuple[Controller, ...] = ()  # primary first
    gres_conf: str | None = None  # the text of the gres.conf beside slurm.conf, if there is one

    @property
    def cluster_name(self) -> str:
        """Return ClusterName."""
        return self.value("ClusterName")

    @property
    def text(self) -> str:
        """Return the text of slurm.conf itself."""
        return self.files[0].text

    @property
    def folder(self) -> str:
        """Return the folder of slurm.conf."""
        return posixpath.dirname(self.slurm_conf)

    @property
    def hosts(self) -> tuple[tuple[str, str], ...]:
        """Return SlurmctldHost's names and addresses, primary first.

        The address is "" where the site leaves it to the resolver.
        """
        rows = sorted(
            (int(match[1]), value)
            for name, value in self.running.items()
            if (match := _HOST_ROW.fullmatch(name))
        )
        hosts = (_HOST.fullmatch(value) for _, value in rows)
        return tuple((host[1], host[2] or "") for host in hosts if host is not None)

    @property
    def port(self) -> int:
        """Return slurmctld's port, the first of a range."""
        text = self.running.get("slurmctldport", "").partition("-")[0]
        return int(text) if text.isdecimal() else DEFAULT_PORT

    @property
    def slurm_user(self) -> str:
        """Return SlurmUser, which slurmctld and our programs run as."""
        return self.value("SlurmUser", "root")

    @property
    def configless(self) -> bool:
        """Return whether slurmd may ask slurmctld for its configuration."""
        words = {word.lower() for word in self.words("SlurmctldParameters")}
        return "enable_configless" in words

    def value(self, name: str, default: str = "") -> str:
        """Return a setting as the files have it."""
        setting = self.settings.get(name.lower())
        return setting.value if setting is not None else default

    def words(self, name: str) -> tuple[str, ...]:
        """Return the members of a list, () without the setting."""
        setting = self.settings.get(name.lower())
        return setting.words if setting is not None else ()


def read_site(
    runner: SiteRunner | Runner, slurm_conf: str = SLURM_CONF, *, slurm_bin: str = "/usr/bin"
) -> SiteFacts:
    """Read a site's files and ask its slurmctld.

    Raises SiteCommandFailed, or SiteUnreadable for an answer of another shape.
    """
    files = read_files(runner, slurm_conf)
    scontrol = f"{slurm_bin}/scontrol"
    version = _VERSION.search(runner.run([scontrol, "--version"]))
    if version is None:
        raise SiteUnreadable(f"{scontrol} --version names no version of Slurm")
    return site_facts(
        files,
        version=version[1],
        running=parse_config(runner.run([scontrol, "show", "config"])),
        controllers=parse_ping(runner.run([scontrol, "ping"])),
        gres_conf=read_if_there(runner, posixpath.join(posixpath.dirname(slurm_conf), GRES_CONF)),
    )


def read_cluster_name(runner: SiteRunner | Runner, *, slurm_bin: str = "/usr/bin") -> str:
    """Return ClusterName as accounting has it: in lower case.

    Raises SiteCommandFailed, or SiteUnreadable for an answer of another shape.
    """
    name = parse_config(runner.run([f"{slurm_bin}/scontrol", "show", "config"])).get("clustername")
    if not name:
        raise SiteUnreadable(f"{slurm_bin}/scontrol show config has no ClusterName")
    return name.lower()


def read_if_there(runner: SiteRunner | Runner, path: str) -> str | None:
    """Return a file's text, None if there is no such file."""
    try:
        runner.run(["/usr/bin/test", "-e", path])
    except HeadCommandFailed as error:
        if error.returncode != 1:
            raise
        return None
    return runner.run(["/usr/bin/cat", "--", path])


def on_controller(runner: SiteRunner, site: SiteFacts) -> SiteFacts:
    """Return the site with slurm.conf and gres.conf as this controller has them.

    Each controller has files of its own, and they may differ.
    """
    slurm_conf = ConfFile(site.slurm_conf, runner.run(["/usr/bin/cat", "--", site.slurm_conf]))
    gres_conf = read_if_there(runner, posixpath.join(site.folder, GRES_CONF))
    return replace(site, files=(slurm_conf, *site.files[1:]), gres_conf=gres_conf)


def read_files(runner: SiteRunner | Runner, slurm_conf: str) -> tuple[ConfFile, ...]:
    """Read slurm.conf and every file that it includes, in order."""
    files: list[ConfFile] = []
    waiting = [slurm_conf]
    while waiting:
        path = waiting.pop(0)
        try:
            text = runner.run(["/usr/bin/cat", "--", path])
        except HeadCommandFailed as error:
            if error.returncode == 1 and path == slurm_conf:
                error.next_step = "say by site.slurm_conf in cluster.yaml where it is"
            raise
        files.append(ConfFile(path, text))
        if len(files) > MAX_INCLUDES:
            raise SiteUnreadable(f"{slurm_conf} includes more than {MAX_INCLUDES} files")
        waiting[:0] = included_paths(files[0], text)
    return tuple(files)


def included_paths(slurm_conf: ConfFile, text: str) -> list[str]:
    """Return the paths of a text's Include lines.

    slurmctld takes a relative path from slurm.conf's own folder, and puts ClusterName, in lower
    case, for %c (src/common/parse_config.c, _parse_for_format).
    """
    name = parse(slurm_conf.text).get("ClusterName")
    cluster = name.value.lower() if name is not None else ""
    folder = posixpath.dirname(slurm_conf.path)
    words = [line.name.split()[0] for line in parse(text).includes]
    return [posixpath.join(folder, word.replace("%c", cluster)) for word in words]


def site_facts(
    files: Sequence[ConfFile],
    *,
    version: str = "",
    running: Mapping[str, str] | None = None,
    controllers: Sequence[Controller] = (),
    gres_conf: str | None = None,
) -> SiteFacts:
    """Return the facts of a site's files, slurm.conf first. Raises nothing."""
    nodes: list[SiteNodes] = []
    partitions: list[SitePartition] = []
    node_defaults: list[SiteNodes] = []
    for file in files:
        conf = parse(file.text)
        nodes += [
            SiteNodes(expanded(line.name), line.values, Place(file.path, line.line))
            for line in conf.nodes
        ]
        node_defaults += [
            SiteNodes((), line.values, Place(file.path, line.line)) for line in conf.node_defaults
        ]
        partitions += [
            SitePartition(line.name, line.values, Place(file.path, line.line))
            for line in conf.partitions
        ]
    return SiteFacts(
        slurm_conf=files[0].path,
        files=tuple(files),
        settings=_settings(files),
        nodes=tuple(nodes),
        partitions=tuple(partitions),
        node_defaults=tuple(node_defaults),
        version=version,
        running=dict(running or {}),
        controllers=tuple(controllers),
        gres_conf=gres_conf,
    )


def _settings(files: Sequence[ConfFile]) -> dict[str, SiteSetting]:
    """Return the settings by name.

    The last of two counts, and a file stands where it is included.
    """
    waiting = list(files)

    def next_file() -> dict[str, SiteSetting]:
        file = waiting.pop(0)
        conf = parse(file.text)
        parts = [
            (item.line, {key: SiteSetting(item.name, item.value, Place(file.path, item.line))})
            for key, item in conf.settings.items()
        ]
        for line, path in zip(conf.includes, included_paths(files[0], file.text), strict=True):
            if waiting and waiting[0].path == path:  # else our file, which is left out
                parts.append((line.line, next_file()))
        merged: dict[str, SiteSetting] = {}
        for _, part in sorted(parts, key=itemgetter(0)):
            merged |= part
        return merged

    settings = next_file()
    while waiting:
        settings |= next_file()
    return settings


def without(site: SiteFacts, name: str) -> SiteFacts:
    """Return the site without one included file of its folder."""
    path = posixpath.join(site.folder, name)
    files = [file for file in site.files if file.path != path]
    return site_facts(
        files,
        version=site.version,
        running=site.running,
        controllers=site.controllers,
        gres_conf=site.gres_conf,
    )


def parse_config(text: str) -> dict[str, str]:
    """Return the rows of `scontrol show config`, by name in lower case."""
    rows = map(_ROW.fullmatch, text.splitlines())
    return {row[1].lower(): row[2].strip() for row in rows if row is not None}
