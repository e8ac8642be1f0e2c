"""FOCUS's names of what a cluster pays for: services, SKUs, regions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from toolkit.accounting.instances import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.accounting.instances import Instance
    from toolkit.prices import Shape

AWS = "Amazon Web Services"
_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class Service:
    """A service, with its one category and subcategory, as FOCUS 1.2 lists them."""

    name: str
    category: str
    subcategory: str
    resource_type: str
    is_of_aws: bool = True


EC2 = Service("Amazon Elastic Compute Cloud", "Compute", "Virtual Machines", "Instance")
_RACKS = Service("Racks", "Compute", "Virtual Machines", "Node", is_of_aws=False)
_SHARES = Service("Shared costs of the cluster", "Other", "Other (Other)", "Share", is_of_aws=False)
_VPC = Service(
    "Amazon Virtual Private Cloud", "Networking", "Network Infrastructure", "Network resource"
)
_STORAGE = {
    "FSx": Service("Amazon FSx", "Storage", "File Storage", "Filesystem"),
    "EBS": Service("Amazon Elastic Block Store", "Storage", "Block Storage", "Volume"),
    "S3": Service("Amazon Simple Storage Service", "Storage", "Object Storage", "Bucket"),
}


def service(instance: Instance | None) -> Service:
    """Return the service of a thing, or of a share."""
    if instance is None:
        return _SHARES
    match instance.kind:
        case Kind.RACK:
            return _RACKS
        case Kind.STORAGE:
            return _STORAGE[_sold(instance).split(" ")[0]]
        case Kind.NETWORK:
            return _VPC
    return EC2


def sku(instance: Instance) -> str:
    """Return the SKU: what is sold, however it is bought."""
    name = _sold(instance).replace(" ", "-")
    return f"ec2/{name}" if instance.kind is Kind.INSTANCE else f"{instance.kind}/{name}"


def _sold(instance: Instance) -> str:
    """Return the type without what was measured of it.

    It is `S3` of `S3: 12.4 GiB on 2026-11-25`.
    """
    return instance.instance_type.partition(":")[0]


def meter(instance: Instance) -> str:
    """Return what the SKU counts."""
    return f"{instance.lifecycle} hours"


def price_details(instance: Instance, shapes: Mapping[str, Shape]) -> str | None:
    """Return an instance type's size as JSON; None if not known."""
    shape = shapes.get(instance.instance_type)
    if shape is None or instance.kind is not Kind.INSTANCE:
        return None
    details = {
        "CoreCount": shape.cpus,
        "GpuCount": shape.gpus,
        "InstanceType": instance.instance_type,
        "MemorySize": round(shape.memory_mib / _MIB_PER_GIB, 3),
        "OperatingSystem": "Linux",
    }
    return json.dumps(details, sort_keys=True)


@lru_cache(maxsize=8)
def region_name(region: str) -> str:
    """Return AWS's name of a region, by botocore's list; else its id."""
    from botocore.loaders import Loader

    for partition in Loader().load_data("partitions")["partitions"]:
        if region in partition["regions"]:
            return str(partition["regions"][region]["description"])
    return region
