"""Cores beside GPUs: what slurm.conf and gres.conf say of a node's processors."""

import json

import pytest

from tests.unit.config.test_load import edited, problems
from tests.unit.render.render_samples import GPU_POOL, PRICES, a_config
from toolkit.render.context import slurm_context
from toolkit.render.slurm import gres_rows, node_line


def lines(version="25.11", profile="aws", **shape):
    """Return a p5 pool's node line and its rows of gres.conf."""
    large = {"cpus": 192, "memory_gib": 2048, "gpus": 8, "gpu": "h100"} | shape
    pools = {"large": GPU_POOL | {"shape": large}}
    parts = {"large": {"pools": ["large"]}}
    config = a_config(profile=profile, pools=pools, partitions=parts, slurm={"version": version})
    context = slurm_context(config, PRICES)
    return node_line(context.nodes[0]), gres_rows(context)


def test_with_sockets_slurm_knows_cores_and_asks_the_driver_which_are_beside_a_gpu():
    node, rows = lines(sockets=2)
    assert " CPUs=192 Sockets=2 CoresPerSocket=48 ThreadsPerCore=2 " in node
    assert rows == [
        "NodeName=large-[001-004] Name=gpu Type=h100 File=/dev/nvidia[0-7] AutoDetect=nvidia"
    ]


def test_an_instance_without_hyperthreads_has_one_thread_in_a_core():
    node, _ = lines(sockets=2, threads_per_core=1)
    assert " Sockets=2 CoresPerSocket=96 ThreadsPerCore=1 " in node


def test_without_sockets_each_cpu_is_its_own_core_and_nothing_is_detected():
    """Detect no cores where slurm.conf counts them otherwise."""
    node, rows = lines()
    assert "Sockets" not in node
    assert "ThreadsPerCore" not in node
    assert "AutoDetect" not in rows[0]


def test_an_older_slurm_gets_cores_and_detects_no_gpus():
    node, rows = lines("24.05", sockets=2)
    assert "Sockets=2" in node
    assert "AutoDetect" not in rows[0]


def test_the_local_profile_detects_no_gpus():
    _, rows = lines("24.11", "local", sockets=2, gpus=1)
    assert rows == ["NodeName=large-[001-004] Name=gpu Type=h100 File=/dev/null"]


@pytest.mark.parametrize(
    ("shape", "key", "words"),
    [
        ({"cpus": 6, "sockets": 2}, "sockets", "a multiple of sockets x threads_per_core, 4"),
        ({"cpus": 4, "threads_per_core": 1}, "threads_per_core", "expected sockets"),
        ({"cpus": 4, "sockets": 1, "threads_per_core": 4}, "threads_per_core", "1 or 2"),
    ],
)
def test_processors_that_no_instance_has_are_refused(shape, key, words):
    old = "{cpus: 4, memory_gib: 16, gpus: 1, gpu: a10g}"
    new = json.dumps({"cpus": 4, "memory_gib": 16, "gpus": 1, "gpu": "a10g"} | shape)
    _, message = problems(edited(old, new))[f"pools.gpu.shape.{key}"]
    assert words in message
