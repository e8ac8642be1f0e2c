"""The documents' sbatch calls, checked against the example for AWS."""

import re
from pathlib import Path

import pytest

from toolkit.config import load

ROOT = Path(__file__).parents[3]
TEXTS = [*ROOT.glob("jobscripts/*.sbatch"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
CALLS = re.compile(r"\bsbatch((?: --[a-z-]+=[^\s`]+)+)")
OPTIONS = re.compile(r"--([a-z-]+)=([^\s`]+)")


RESOURCE_OPTIONS = {"partition", "constraint", "gpus-per-node"}
CALLS_WITH_RESOURCES = [
    pytest.param(options, id=f"{path.name}{call}")
    for path in TEXTS
    for call in CALLS.findall(path.read_text(encoding="utf-8"))
    if RESOURCE_OPTIONS & (options := dict(OPTIONS.findall(call))).keys()
]


@pytest.mark.parametrize("options", CALLS_WITH_RESOURCES)
def test_a_documented_sbatch_call_fits_the_example_for_aws(options):
    """Check the named partition, else the default one.

    Slurm looks in one partition only.
    """
    config = load(ROOT / "examples" / "aws.yaml")
    default = next(name for name, part in config.partitions.items() if part.default)
    kind, _, count = options.get("gpus-per-node", "1").rpartition(":")
    features = {kind, options.get("constraint", "")} - {""}
    assert any(
        pool.shape.gpus >= int(count)
        and pool.count >= int(options.get("nodes", "1"))
        and features <= {name, pool.shape.gpu}
        for name, pool in config.pools.items()
        if name in config.partitions[options.get("partition", default)].pools
    )


def test_the_documents_contain_sbatch_calls():
    assert len(CALLS_WITH_RESOURCES) > 5
