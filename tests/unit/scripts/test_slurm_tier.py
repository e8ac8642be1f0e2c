"""The real-Slurm tier's two pytest runs.

Each run starts, whatever the result of the other is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
PYTEST = """#!/bin/sh
case $* in *" -n 2 "*) name=lanes ;; *) name=alone ;; esac
echo "$name" >>runs
[ "$FAILS" != "$name" ]
"""


@pytest.fixture
def root(tmp_path):
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTEST)
    python.chmod(0o755)
    (tmp_path / "scripts/clean").write_text("#!/bin/sh\n")
    return tmp_path


@pytest.mark.parametrize(("fails", "passes"), [("lanes", False), ("alone", False), ("none", True)])
def test_the_tier_makes_both_runs_and_fails_if_one_fails(root, fails, passes):
    environment = os.environ | {"TOOLKIT_LOCAL_DIR": str(root / "state"), "FAILS": fails}
    done = subprocess.run([str(root / "scripts/slurm-tier")], env=environment, check=False)
    assert (root / "runs").read_text().split() == ["lanes", "alone"]
    assert (done.returncode == 0) is passes
