"""site.json of a controller that we joined."""

from __future__ import annotations

import json

import pytest

from slurmplugins.config import site
from slurmplugins.errors import ConfigError


def test_it_is_read(tmp_path):
    path = tmp_path / "site.json"
    path.write_text(
        json.dumps({"nodes": "gpu-[001-002]", "programs": {"resume": "/site/up"}, "new": 1})
    )
    assert site.load(path) == site.SiteConfig(
        frozenset({"gpu-001", "gpu-002"}), {"resume": "/site/up"}, "/usr/bin"
    )


def test_no_controller_but_a_sites_has_one(tmp_path):
    assert site.load(tmp_path / "site.json") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "can't be read"),
        ("[]", "expected an object"),
        ('{"nodes": ""}', "nodes: expected a hostlist"),
        ('{"nodes": "RACK"}', "not a node name"),
        ('{"nodes": "gpu-001", "programs": {"resume": "up"}}', "expected an absolute path"),
        ('{"nodes": "gpu-001", "programs": {"boot": "/up"}}', "programs.boot"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path, text, problem):
    path = tmp_path / "site.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        site.load(path)
