"""Renders slurm.conf, the files beside it, and the script of the line at submit."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from slurmplugins.config.paths import JOB_MOUNTS, PRICES_FOR_SUBMIT, SCRATCH
from slurmplugins.model import topology
from toolkit.errors import RenderError
from toolkit.render.settings import HOOKS, sections
from toolkit.render.templates import environment, render
from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from toolkit.render.context import NodeLine, PartitionLine, SlurmContext

PSEUDO_GPUS: Final = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
"""A GRES needs a device node that exists; these exist in every container, and do no harm."""
PRIVATE_FOLDERS: Final = ("/tmp", "/var/tmp", str(SCRATCH), "/dev/shm")  # noqa: S108 - each job's own
"""Folders that slurmd mounts anew for each job. None may lie above the place of the mounts."""
AUTODETECT_SINCE: Final = SlurmVersion(24, 11)
"""AutoDetect=nvidia reads the GPUs' cores from sysfs, and needs no library (gres.conf(5))."""
CONTAINERS_SINCE: Final = SlurmVersion(24, 11)
"""The first patched series: slurmstepd, as root, could remove files outside its spool as it
cleaned up a container (CVE-2026-65109)."""
_WEIGHT_QUANTUM: Final = Decimal("0.01")


def slurm_files(context: SlurmContext, templates: Path) -> dict[str, str]:
    """Return the text of each file in the head's /etc/slurm, by name.

    Configless Slurm hands them to the nodes.
    """
    jinja = environment(templates / "slurm")
    shared = {"cluster": context.cluster, "version": str(context.version), "local": context.local}
    files = {
        "slurm.conf": render(
            jinja,
            "slurm.conf.j2",
            sections=sections(context),
            nodes=[node_line(node) for node in context.nodes],
            partitions=[partition_line(partition) for partition in context.partitions],
            **shared,
        ),
        "gres.conf": render(jinja, "gres.conf.j2", rows=gres_rows(context), **shared),
        "cgroup.conf": render(jinja, "cgroup.conf.j2", **shared),
        "job_container.conf": render(
            jinja,
            "job_container.conf.j2",
            place=JOB_MOUNTS,
            folders=",".join(PRIVATE_FOLDERS),
            init_script=f"{HOOKS}/slurm-user-scratch",
            **shared,
        ),
    }
    if context.submit_line:
        files["cli_filter.lua"] = render(
            jinja,
            "cli_filter.lua.j2",
            prices_file=PRICES_FOR_SUBMIT,
            class_partitions=context.class_partitions,
            **shared,
        )
    if context.version >= CONTAINERS_SINCE:
        files["oci.conf"] = render(jinja, "oci.conf.j2", **shared)
    if context.placed_nodes:
        files["topology.yaml"] = render(
            jinja,
            "topology.yaml.j2",
            topology=topology.TOPOLOGY,
            root=topology.ROOT,
            unplaced=topology.UNPLACED,
            nodes=context.placed_nodes,
            **shared,
        )
    return files


def node_line(node: NodeLine) -> str:
    """Return a pool as one line of slurm.conf."""
    fields = {
        "NodeName": node.nodes,
        "CPUs": node.cpus,
        "Sockets": node.sockets or "",
        "CoresPerSocket": node.cores_per_socket or "",
        "ThreadsPerCore": node.threads_per_core if node.sockets else "",
        "RealMemory": node.memory_mib,
        "Gres": node.gres,
        "Features": ",".join(node.features),
        "Weight": node.weight,
        "State": "CLOUD",
    }
    return _line(fields)


def partition_line(partition: PartitionLine) -> str:
    """Return a partition as one line of slurm.conf."""
    fields = {
        "PartitionName": partition.name,
        "Nodes": partition.nodes,
        "Default": "YES" if partition.default else "NO",
        "MaxTime": partition.max_time,
        "DefMemPerCPU": partition.memory_per_cpu,
        "DefCpuPerGPU": partition.cpus_per_gpu or "",
        "DefMemPerGPU": partition.memory_per_gpu or "",
        "SuspendTime": partition.suspend_time,
        "PriorityTier": partition.priority if partition.priority > 1 else "",
        "GraceTime": partition.grace_seconds or "",
        "DenyQos": ",".join(partition.denied_qos),
        "Topology": partition.topology,
        "TRESBillingWeights": billing_weights(partition),
        "State": "UP",
    }
    return _line(fields)


def billing_weights(partition: PartitionLine) -> str:
    """Return a partition's TRESBillingWeights; empty without a known price."""
    return ",".join(_weight(unit, value) for unit, value in partition.billing)


def gres_rows(context: SlurmContext) -> list[str]:
    """Return one line per device if pretended, one per pool otherwise.

    Where the cores are known, slurmd finds out which of them are beside which GPU.
    """
    rows = []
    for node in (node for node in context.nodes if node.gpus):
        kind = f" Type={node.gpu}" if node.gpu else ""
        start = f"NodeName={node.nodes} Name=gpu{kind}"
        if not context.local:
            last = "0" if node.gpus == 1 else f"[0-{node.gpus - 1}]"
            detected = node.sockets and context.version >= AUTODETECT_SINCE
            found = " AutoDetect=nvidia" if detected else ""
            rows.append(f"{start} File=/dev/nvidia{last}{found}")
            continue
        if node.gpus > len(PSEUDO_GPUS):
            raise RenderError(
                f"pools.{node.pool}.shape.gpus: with profile local a node has at most"
                f" {len(PSEUDO_GPUS)} GPUs, not {node.gpus}"
            )
        rows.extend(f"{start} File={device}" for device in PSEUDO_GPUS[: node.gpus])
    return rows


def _line(fields: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items() if value != "")


def _weight(unit: str, value: Decimal) -> str:
    rounded = value.quantize(_WEIGHT_QUANTUM, rounding=ROUND_HALF_UP)
    return f"{unit}={rounded}{'G' if unit == 'Mem' else ''}"
