"""Nodes that join the captured sites: four of a CPU pool, and two with GPUs."""

from __future__ import annotations

from ipaddress import IPv4Network

from toolkit.join.preflight.cloud import CloudSide

FITTING = CloudSide(
    slurm_version="24.11",
    nodes=("cpu-001", "cpu-002", "cpu-003", "cpu-004", "gpu-001", "gpu-002"),
    hostlist="cpu-[001-004],gpu-[001-002]",
    partitions=("cloud", "cloud-gpu"),
    subnets=(IPv4Network("10.42.0.0/20"), IPv4Network("10.42.16.0/20")),
    gpu_nodes="gpu-[001-002]",
    gpu_kinds=("a10g",),
    users={"ada": 2001, "grace": 2002},
    shared_paths=("/shared",),
)
