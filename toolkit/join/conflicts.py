"""Settings of a site that can't hold beside cluster.yaml, each with its line. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.model.hostlist import expand
from toolkit.config.suggestions import suggestion
from toolkit.join import include_line
from toolkit.join.include_files import HEADER, PROGRAMS, file_name, site_programs
from toolkit.join.site import GRES_CONF, Place
from toolkit.lint.slurm_conf.parser import Setting, parse
from toolkit.render.versions import OLDEST, SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config import ClusterConfig
    from toolkit.join.site import SiteFacts

AUTH_TYPES: Final = ("auth/munge", "auth/slurm")
OWN_NODE_KEYS: Final = frozenset({"cpus", "realmemory", "feature", "features", "weight", "state"})
"""What our NodeName lines always state (slurm.conf(5): a later DEFAULT replaces, none unsets)."""
NEVER: Final = -1
"""SuspendTime of nodes that are never powered down."""
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
"""A reader of text has it where bytes are not UTF-8."""
SHOWN: Final = 5
"""Names of nodes in a message; the rest is a number."""
PARALLELCLUSTER: Final = re.compile(r"[a-z0-9-]+-(st|dy)-[a-z0-9-]+-[0-9]+")
"""The nodes that ParallelCluster's clustermgtd manages, wherever they are from: it knows them by
their names (parse_nodename of aws-parallelcluster-node)."""
_NUMBERED: Final = re.compile(r"(.*-)([0-9]{1,9})")
_HEADER_START: Final = HEADER.partition("{")[0]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two settings that can't both hold."""

    message: str
    mend: str
    place: Place | None = None  # the site's line
    slug: str = ""  # of the preflight's finding about the same fault, if it has one

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place is not None else ""
        return f"{where}{self.message}: {self.mend}"


def conflicts(config: ClusterConfig, site: SiteFacts) -> tuple[Conflict, ...]:
    """Return everything that keeps these nodes out of the site.

    `site` is without our own file.
    """
    return (
        *_versions(config, site),
        *_settings(config, site),
        *_power_saving_that_is_off(site),
        *_not_utf_8(config, site),
        *_node_names(config, site),
        *_names_but_for_zeros(config, site),
        *_names_of_parallelcluster(config, site),
        *_node_defaults(site),
        *_partitions(config, site),
        *_other_joins(config, site),
        *_place_of_our_line(config, site),
    )


def lost_partitions(config: ClusterConfig, own_text: str | None) -> Iterator[Conflict]:
    """Yield partitions of our file that cluster.yaml has no more.

    slurmctld fails a running job whose list of partitions has one that is gone.
    """
    for line in parse(own_text or "").partitions:
        if line.name not in config.partitions:
            yield Conflict(
                f"partition {line.name} of this join is in cluster.yaml no more",
                "keep it, since jobs may name it; or run `toolkit join remove` first",
            )


def burst_rules(
    config: ClusterConfig, site: SiteFacts, places: Mapping[str, Place]
) -> Iterator[Conflict]:
    """Yield burst rules of partitions that the site lacks.

    `places` has the lines of cluster.yaml by partition. `site` is without our own file.
    """
    names = {line.name for line in site.partitions}
    for rack in config.burst:
        if rack not in names:
            yield Conflict(
                f"burst.{rack}: the site has no partition {rack}",
                "a rule is of a partition of the site" + suggestion(rack, names),
                places.get(rack),
            )


def _versions(config: ClusterConfig, site: SiteFacts) -> Iterator[Conflict]:
    """Yield nodes newer than slurmctld (https://slurm.schedmd.com/upgrades.html)."""
    try:
        series = SlurmVersion.parse(site.version)
    except ValueError:
        yield Conflict(f"the site's Slurm has no known version: {site.version!r}", "name it here")
        return
    nodes = SlurmVersion.parse(config.slurm.version)
    if series < OLDEST:
        mend = f"upgrade it to {OLDEST} or later"
        yield Conflict(f"the site runs Slurm {site.version}", mend, slug="slurm-unsupported")
    if nodes > series:
        yield Conflict(
            f"slurm.version {nodes} is later than the site's {site.version}",
            f"set slurm.version to {series} or earlier, of two series before at most",
            slug="node-newer",
        )


def _settings(config: ClusterConfig, site: SiteFacts) -> Iterator[Conflict]:
    user, wanted = site.settings.get("slurmuser"), config.joined_site.slurm_user
    if site.slurm_user != wanted:
        place = user.place if user is not None else None
        mend = f"set site.slurm_user to {site.slurm_user}"
        yield Conflict(f"SlurmUser is {site.slurm_user}, not {wanted}", mend, place)
    auth = site.settings.get("authtype")
    if auth is not None and auth.value.lower() not in AUTH_TYPES:
        mend = f"only {' and '.join(AUTH_TYPES)} can be given to cloud nodes"
        yield Conflict(f"AuthType={auth.value}", mend, auth.place, "auth-type")
    parameters = site.settings.get("slurmctldparameters")
    words = {word.lower() for word in site.words("SlurmctldParameters")}
    place = parameters.place if parameters is not None else None
    if "enable_configless" not in words:
        line = ",".join((*site.words("SlurmctldParameters"), "enable_configless"))
        yield Conflict(
            "SlurmctldParameters lacks enable_configless, by which cloud nodes get slurm.conf",
            f"write `SlurmctldParameters={line}` and restart slurmctld; racks with a slurm.conf of"
            " their own go on reading it",
            place or Place(site.slurm_conf, len(site.text.splitlines())),
            "configless",
        )
    if "cloud_dns" in words:
        mend = "take it out; no DNS knows an instance by its node's name"
        yield Conflict("SlurmctldParameters has cloud_dns", mend, place, "cloud-dns")
    for name in ("SuspendRate", "ResumeRate"):
        rate = site.settings.get(name.lower())
        if rate is not None and rate.value.startswith("-"):
            yield Conflict(
                f"{name}={rate.value} switches power saving off", "take it out", rate.place
            )


def _power_saving_that_is_off(site: SiteFacts) -> Iterator[Conflict]:
    """Yield SuspendTime of racks at a site without programs for it.

    slurmctld saves power only with both programs (_init_power_config in power_save.c), and a join
    brings them. It would then power racks down, and nothing powers them up again.
    """
    known = site_programs(site)
    lacking = [name for name in ("SuspendProgram", "ResumeProgram") if PROGRAMS[name] not in known]
    if not lacking:
        return
    times = [(item.value, item.place) for item in [site.settings.get("suspendtime")] if item]
    times += [
        (line.values["suspendtime"], line.place)
        for line in site.partitions
        if "suspendtime" in line.values
    ]
    for value, place in times:
        if Setting("SuspendTime", value, place.line).number != NEVER:
            yield Conflict(
                f"SuspendTime={value} has no effect now, without {' and '.join(lacking)}; with our"
                " programs slurmctld would power racks down, and nothing powers them up",
                f"take SuspendTime out, or set {' and '.join(lacking)}",
                place,
            )


def _not_utf_8(config: ClusterConfig, site: SiteFacts) -> Iterator[Conflict]:
    """Yield lines that could not be written back as they were read."""
    if config.joined_site.include == "by-hand":
        return
    texts = {site.slurm_conf: site.text, f"{site.folder}/{GRES_CONF}": site.gres_conf or ""}
    for path, text in texts.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if REPLACEMENT in line:
                yield Conflict(
                    "the line has bytes that are not UTF-8, and the file must stay as it is",
                    "write it in UTF-8, as `iconv -f latin1 -t utf8` does; or set site.include:"
                    " by-hand, and add our line yourself",
                    Place(path, number),
                )
                break


def _own_nodes(config: ClusterConfig) -> dict[str, str]:
    """Return the pool of each of our nodes."""
    return {str(name): pool for pool in config.pools for name in expand(config.nodes(pool))}


def _node_names(config: ClusterConfig, site: SiteFacts) -> Iterator[Conflict]:
    own = _own_nodes(config)
    for line in site.nodes:
        shared = [name for name in line.names if name in own]
        if not shared:
            continue
        pools = ", ".join(sorted({own[name] for name in shared}))
        yield Conflict(
            f"the site has nodes {_shown(shared)}, as pool {pools} has",
            "name the pool otherwise in cluster.yaml",
            line.place,
            "node-name-taken",
        )


def _names_but_for_zeros(config: ClusterConfig, site: SiteFacts) -> Iterator[Conflict]:
    """Yield nodes of the site such as cloud-1 beside our cloud-001.

    Slurm takes them as two, and people take them as one.
    """
    own = _own_nodes(config)
    by_number = {_numbered(name): name for name in own}
    for line in site.nodes:
        like = [name for name in line.names if name not in own and _numbered(name) in by_number]
        if like:
            ours = [by_number[_numbered(name)] for name in like]
            yield Conflict(
                f"the site has nodes {_shown(like)}: pool {own[ours[0]]} has {_shown(ours)}, which"
                " differ only in zeros",
                "name the pool otherwise in cluster.yaml",
                line.place,
            )


def _names_of_parallelcluster(config: ClusterConfig, site: SiteFacts) -> Iterator[Conflict]:
    """Yield pools whose nodes a ParallelCluster at the site would manage."""
    pools = [pool for pool in config.pools if PARALLELCLUSTER.fullmatch(f"{pool}-1")]
    for line in site.nodes:
        theirs = [name for name in line.names if PARALLELCLUSTER.fullmatch(name)]
        if theirs and pools:
            yield Conflict(
                f"the site has nodes of ParallelCluster, such as {theirs[0]}: its clustermgtd would"
                f" power down nodes of pool {', '.join(pools)}, because it knows its own by -st-"
                " and -dy- in their names",
                "name the pool otherwise in cluster.yaml",
                line.place,
            )
            return


def _numbered(name: str) -> tuple[str, int]:
    """Return the parts of a node's name, its number without zeros."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, -1)


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _node_defaults(site: SiteFacts) -> Iterator[Conflict]:
    """Yield defaults of the site's nodes that ours would take."""
    for line in site.node_defaults:
        keys = sorted(key for key in line.values if key not in OWN_NODE_KEYS)
        if keys:
            yield Conflict(
                f"NodeName=DEFAULT states {', '.join(keys)}, which cloud nodes would take too",
                "write these on the racks' own lines",
                line.place,
            )


def _partitions(config: ClusterConfig, site: SiteFacts) -> Iterator[Conflict]:
    own = {name.lower(): name for name in config.partitions}
    for line in site.partitions:
        if line.name.lower() in own:
            yield Conflict(
                f"the site has a partition {line.name}",
                f"name partition {own[line.name.lower()]} otherwise in cluster.yaml",
                line.place,
                "partition-name-taken",
            )
        if line.values.get("nodes", "").upper() == "ALL":
            yield Conflict(
                f"partition {line.name} has Nodes=ALL, which takes the cloud nodes too",
                "list the site's own nodes there",
                line.place,
                "partition-of-all-nodes",
            )


def _other_joins(config: ClusterConfig, site: SiteFacts) -> Iterator[Conflict]:
    for file in site.files:
        if file.text.startswith(_HEADER_START) and not file.path.endswith(f"/{file_name(config)}"):
            yield Conflict(
                f"{file.path} is of another join, and slurmctld has one ResumeProgram",
                "put its pools into this cluster.yaml, and remove that join",
                _include_place(site, file.path.rpartition("/")[2]),
            )


def _place_of_our_line(config: ClusterConfig, site: SiteFacts) -> Iterator[Conflict]:
    """Yield a setting below a line that a person put too high."""
    ours = include_line.line_number(site.text, file_name(config))
    for name in PROGRAMS if ours else ():
        setting = site.settings.get(name.lower())
        if setting is None or setting.place.file != site.slurm_conf:
            continue
        if setting.place.line > ours:
            mend = f"move `Include {file_name(config)}` below it: the last setting counts"
            yield Conflict(f"{name} is set after our file", mend, setting.place)


def _include_place(site: SiteFacts, name: str) -> Place | None:
    number = include_line.line_number(site.text, name)
    return Place(site.slurm_conf, number) if number else None
