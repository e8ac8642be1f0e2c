"""`toolkit secrets rotate` before it reaches AWS."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit import cli

AWS = Path(__file__).parents[3] / "examples/aws.yaml"


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_slurm_that_knows_one_key_only_is_refused_with_the_reason(capsys, more):
    assert 'version: "23.11"' in AWS.read_text()
    assert cli.run(["secrets", "rotate", "--config", str(AWS), *more]) == 1
    said = capsys.readouterr().err
    assert "needs Slurm 24.05, this is 23.11" in said
    assert "[slurm-too-old]" in said
