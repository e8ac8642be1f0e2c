"""The place of a run, a region of AWS or the local cloud, and its cluster.yaml."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

from tests.aws.sizes import BUILDER_TYPE, HEAD_TYPE
from toolkit import assets

if TYPE_CHECKING:
    from tests.aws.sizes import Size

USER = "tester"


@dataclass(frozen=True, slots=True)
class Place:
    """A region and zone; with an endpoint, the local cloud's."""

    region: str
    zone: str
    profile: str = ""
    endpoint_url: str = ""
    credentials_file: str = ""

    @property
    def on_aws(self) -> bool:
        """Return whether this is AWS itself."""
        return not self.endpoint_url


def cluster_yaml(size: Size, place: Place) -> str:
    """Return the file of a size's cluster, made from an example."""
    kind = "aws" if place.on_aws else "local"
    yaml = YAML(typ="rt")
    settings = yaml.load((assets.directory("examples") / f"{kind}.yaml").read_text())
    settings["cluster"] = size.cluster
    settings["aws"] = _aws(place, settings["aws"])
    settings["network"] = {"cidr": "10.99.0.0/16", "zones": {place.zone: "10.99.0.0/20"}}
    if place.on_aws:
        settings["network"]["nat_subnet"] = "10.99.255.0/28"
        settings["images"]["builder_type"] = BUILDER_TYPE
    settings["head"] = {"instance_type": HEAD_TYPE, "root_gib": 50}
    settings["shared"] = {"type": "lustre", "gib": 1200, "throughput": 125}
    settings["pools"] = {"node": _pool(size)}
    settings["partitions"] = {"test": {"pools": ["node"], "default": True}}
    settings["accounts"] = [{"name": "test", "fairshare": 1}]
    settings["users"] = [{"name": USER, "uid": 2001, "account": "test"}]
    stream = io.StringIO()
    yaml.dump(settings, stream)
    return stream.getvalue()


def _aws(place: Place, example: Any) -> dict[str, Any]:
    aws = {"region": place.region}
    if place.profile:
        aws["profile"] = place.profile
    if not place.on_aws:
        aws["endpoint_url"] = place.endpoint_url
        aws["profile"] = place.profile or example["profile"]
        aws["credentials_file"] = place.credentials_file or example["credentials_file"]
    return aws


def _pool(size: Size) -> dict[str, Any]:
    shape: dict[str, Any] = {"cpus": size.cpus, "memory_gib": size.memory_gib}
    if size.gpus:
        shape |= {"gpus": size.gpus, "gpu": size.gpu}
    pool: dict[str, Any] = {
        "count": size.nodes,
        "shape": shape,
        "offerings": [{"type": size.node_type, "capacity": "on-demand"}],
    }
    if size.efa:
        pool |= {"efa": size.efa, "placement_group": True}
    return pool
