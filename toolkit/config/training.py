"""The sections of cluster.yaml on what jobs find: their Python environment, and their data."""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from typing import Annotated

from pydantic import Field

from toolkit.config import types
from toolkit.config.section import Section
from toolkit.config.types import Requirement

SHARED_STORE = "/shared/datasets"
DATA_PREFIX = "data"
CHECKPOINTS_PREFIX = "checkpoints"


class Training(Section):
    """The Python environment that jobs start with, at /shared/env.

    `checkpoints`: where in S3 runs may copy their checkpoints (`S3Tier.of_cluster`): `bucket` (the
    cluster's own, which goes with it) or another bucket. Not given, machines have no right to any.
    `interruptions_per_machine_hour`: what runs expect, to save as often as pays off, before they
    have seen any. Not given: one a day.
    """

    python: Annotated[str, Field(pattern=types.PROGRAM)] = "/usr/bin/python3"
    requirements: tuple[Requirement, ...] = ()
    checkpoints: Annotated[str, Field(pattern=types.CHECKPOINTS)] | None = None
    interruptions_per_machine_hour: Annotated[float, Field(gt=0, le=60)] | None = None

    def checkpoints_url(self, *, bucket: str) -> str | None:
        """Where that is, for a cluster whose own bucket this is."""
        own = f"s3://{bucket}/{CHECKPOINTS_PREFIX}"
        return own if self.checkpoints == "bucket" else self.checkpoints


class Data(Section):
    """Where datasets are kept, and how much of them a node may hold.

    `store`: `shared` (a folder of the filesystem) or `bucket` (the cluster's own), both of which go
    with the cluster, or another bucket. In `cache`, on a node, every user gets a folder of their
    own; where there is no such folder, in /var/tmp. /scratch is the node's instance storage. Not
    given, `cache_gib` is 80 % of the free disk.
    """

    store: Annotated[str, Field(pattern=types.STORE)] = "shared"
    cache: Annotated[str, Field(pattern=types.FOLDER)] = "/scratch"
    cache_gib: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    def store_url(self, *, bucket: str) -> str:
        """Where that is, for a cluster whose own bucket this is."""
        return {"shared": SHARED_STORE, "bucket": f"s3://{bucket}/{DATA_PREFIX}"}.get(
            self.store, self.store
        )

    @property
    def in_s3(self) -> bool:
        """Reading it needs boto3, and a role that may."""
        return self.store != "shared"
