"""The documents' sbatch calls, checked against the examples for AWS and for a join."""

import re
from pathlib import Path

import pytest

from toolkit.config import load

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
TEXTS = [*ROOT.glob("jobscripts/*.sbatch"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
CALLS = re.compile(r"\bsbatch((?: --[a-z-]+=[^\s`]+)+)")
OPTIONS = re.compile(r"--([a-z-]+)=([^\s`]+)")


RESOURCE_OPTIONS = {"partition", "constraint", "gpus-per-node"}
OF_A_SITE = {"racks"}  # partitions that a site has: no cluster.yaml of ours tells their nodes
CALLS_WITH_RESOURCES = [
    pytest.param(options, id=f"{path.name}{call}")
    for path in TEXTS
    for call in CALLS.findall(path.read_text(encoding="utf-8"))
    if RESOURCE_OPTIONS & (options := dict(OPTIONS.findall(call))).keys()
    and options.get("partition") not in OF_A_SITE
]


@pytest.mark.parametrize("options", CALLS_WITH_RESOURCES)
def test_a_documented_sbatch_call_fits_an_example(options):
    """Check the named partitions, else the default one.

    Slurm looks in these partitions only.
    """
    names = set(options.get("partition", "").split(",")) - {""}
    name = "join" if names & load(EXAMPLES / "join.yaml").partitions.keys() else "aws"
    config = load(EXAMPLES / f"{name}.yaml")
    partitions = names - OF_A_SITE or {n for n, part in config.partitions.items() if part.default}
    default_gpus = {"aws": "1", "join": "0"}[name]  # the pools of a join's example have none
    kind, _, count = options.get("gpus-per-node", default_gpus).rpartition(":")
    features = {kind, options.get("constraint", "")} - {""}
    for partition in partitions:
        assert any(
            pool.shape.gpus >= int(count)
            and pool.count >= int(options.get("nodes", "1"))
            and features <= {pool_name, pool.shape.gpu}
            for pool_name, pool in config.pools.items()
            if pool_name in config.partitions[partition].pools
        )


def test_the_documents_contain_sbatch_calls():
    assert len(CALLS_WITH_RESOURCES) > 5
