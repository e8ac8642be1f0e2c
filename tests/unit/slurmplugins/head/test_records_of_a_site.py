"""Records of a site with several controllers: the one in charge writes them."""

from __future__ import annotations

import json
import socket
import sys

import pytest

from slurmplugins import records
from slurmplugins.config import paths


@pytest.mark.parametrize(("host", "code"), [("other", 0), (socket.gethostname(), 1)])
def test_only_the_controller_in_charge_goes_on_to_write(host, code, tmp_path, monkeypatch):
    """Let the program end early, or fail by its lack of burst.json."""
    scontrol, site = tmp_path / "scontrol", tmp_path / "site.json"
    scontrol.write_text(f"#!/bin/sh\necho 'Slurmctld(primary) at {host} is UP'\n")
    scontrol.chmod(0o755)
    settings = {"nodes": "cloud-[001-003]", "programs": {}, "slurm_bin": str(tmp_path)}
    site.write_text(json.dumps(settings))
    for name, path in {"SITE": site, "BURST": tmp_path / "none", "LOGS": tmp_path}.items():
        monkeypatch.setattr(paths, name, path)
    monkeypatch.setattr(sys, "argv", ["slurm-records", "write", "a-bucket"])
    with pytest.raises(SystemExit) as ended:
        records.main()
    assert ended.value.code == code
