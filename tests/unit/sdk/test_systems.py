"""The list of SDKs, and what the tier on the oldest one installs."""

from __future__ import annotations

import tomllib
from dataclasses import replace

from tests.sdk.systems import ROOT, oldest, requirements, systems
from toolkit.config.base_image import LOCAL_DEFAULTS
from toolkit.config.model import BaseImage


def test_each_base_image_has_its_sdk_in_the_list():
    listed = {system.base_image for system in systems()}
    assert listed == {BaseImage().name, LOCAL_DEFAULTS["images"]["base"]["name"]}


def test_the_oldest_sdk_is_found_by_number_and_not_by_letter():
    older, newer = "1.9.10", "1.34.46"
    known = [
        replace(system, packages={**system.packages, "botocore": version})
        for system, version in zip(systems(), (newer, older), strict=True)
    ]
    assert oldest(known).packages["botocore"] == older


def test_the_tier_installs_that_sdk_and_no_other():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = requirements(oldest(systems()), project)
    assert [item for item in wanted if item.startswith("boto")] == [
        "boto3==1.34.46",
        "botocore==1.34.46",
    ]
    names = {"click", "moto", "pytest"}
    assert names <= {item.partition("[")[0].partition(">")[0] for item in wanted}
