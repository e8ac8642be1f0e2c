"""Our files beside the site's slurm.conf: nodes, partitions and power saving. Pure.

They lie in slurm.conf's own folder, and the Include line has no slash: configless Slurm sends only
such files to slurmd (https://slurm.schedmd.com/configless_slurm.html).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from toolkit.render.context import slurm_context
from toolkit.render.slurm import gres_rows, node_line, partition_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.config import ClusterConfig
    from toolkit.join.site import SiteFacts
    from toolkit.render.context import PartitionLine, SlurmContext
    from toolkit.render.prices import Prices

BIN: Final = "/opt/slurm-toolkit/bin"
PROGRAMS: Final = {
    "ResumeProgram": "resume",
    "SuspendProgram": "suspend",
    "ResumeFailProgram": "resume-fail",
}
"""Our program for each setting, by the name that site.json has for the site's."""
HEADER: Final = "# Cloud nodes of {cluster}, by toolkit join. Change cluster.yaml, not this file."


KEPT_FOR: Final = "# Kept for jobs that may name these partitions: "


@dataclass(frozen=True, slots=True)
class GlobalSetting:
    """A setting of all of slurmctld that our file states, after the site's."""

    name: str
    value: str
    before: str  # the site's; "" if it has none
    why: str


def file_name(config: ClusterConfig) -> str:
    """Return the name of the file that slurm.conf includes."""
    return f"toolkit-{config.cluster}.conf"


def gres_file_name(config: ClusterConfig) -> str:
    """Return the name of the file that gres.conf includes."""
    return f"toolkit-{config.cluster}-gres.conf"


def slurm_text(config: ClusterConfig, site: SiteFacts, prices: Prices) -> str:
    """Return our part of slurm.conf. `site` is without it."""
    context = slurm_context(config, prices)
    settings = [f"{item.name}={item.value}" for item in global_settings(config, site)]
    nodes = [node_line(node) for node in context.nodes]
    partitions = [_partition(context, partition) for partition in context.partitions]
    header = HEADER.format(cluster=config.cluster)
    return "\n".join([header, *settings, *nodes, *partitions]) + "\n"


def kept_partitions(config: ClusterConfig, jobs: Iterable[str]) -> str:
    """Return our file without nodes, for jobs that may name our partitions.

    slurmctld fails a job, also one that runs on racks, if a partition of its list is gone
    (reset_job_bitmaps in src/slurmctld/read_config.c). No new job can name an inactive one.
    """
    lines = [f"PartitionName={name} State=INACTIVE" for name in config.partitions]
    header = HEADER.format(cluster=config.cluster)
    return "\n".join([header, f"{KEPT_FOR}{','.join(jobs)}", *lines]) + "\n"


def jobs_of_kept_partitions(text: str | None) -> frozenset[str] | None:
    """Return the jobs for which partitions were kept.

    None if they were not kept.
    """
    for line in (text or "").splitlines():
        if line.startswith(KEPT_FOR):
            return frozenset(line.removeprefix(KEPT_FOR).split(","))
    return None


def gres_text(config: ClusterConfig, prices: Prices) -> str:
    """Return our part of gres.conf; "" without GPUs."""
    rows = gres_rows(slurm_context(config, prices))
    header = HEADER.format(cluster=config.cluster)
    return "\n".join([header, *rows]) + "\n" if rows else ""


def global_settings(config: ClusterConfig, site: SiteFacts) -> tuple[GlobalSetting, ...]:
    """Return the global settings that our file states.

    Times are not among them: our partitions have their own.
    """
    settings = [
        GlobalSetting(
            name,
            f"{BIN}/slurm-{program}",
            site.value(name),
            f"hands the site's nodes on to {before}" if (before := site.value(name)) else "",
        )
        for name, program in PROGRAMS.items()
    ]
    static = [config.nodes(name, pool.static) for name, pool in config.pools.items() if pool.static]
    words = _more_words(site, "SuspendExcNodes", static)
    if words:
        settings.append(_merged(site, "SuspendExcNodes", words, "static nodes stay up"))
    has_gpus = any(pool.shape.gpus for pool in config.pools.values())
    types = _more_words(site, "GresTypes", ["gpu"]) if has_gpus else ()
    if types:
        settings.append(_merged(site, "GresTypes", types, "our nodes have GPUs"))
    return tuple(settings)


def site_programs(site: SiteFacts) -> dict[str, str]:
    """Return the site's own power-save programs, as site.json has them.

    slurmctld starts no program without a full path (_valid_prog in power_save.c).
    """
    paths = {program: site.value(name) for name, program in PROGRAMS.items()}
    return {program: path for program, path in paths.items() if path.startswith("/")}


def _more_words(site: SiteFacts, name: str, words: list[str]) -> tuple[str, ...]:
    """Return the site's words and ours; () if ours are there already."""
    own = site.words(name)
    missing = [word for word in words if word not in own]
    return (*own, *missing) if missing else ()


def _merged(site: SiteFacts, name: str, words: tuple[str, ...], why: str) -> GlobalSetting:
    return GlobalSetting(name, ",".join(words), site.value(name), why)


def _partition(context: SlurmContext, partition: PartitionLine) -> str:
    """Return a partition's line, with times of its own.

    The price of a node is no part of it: billing weights are the site's to choose.
    """
    line = partition_line(replace(partition, billing=()))
    times = f"ResumeTimeout={context.resume_timeout} SuspendTimeout={context.suspend_timeout}"
    return f"{line} {times}"
