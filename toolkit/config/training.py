"""The sections of cluster.yaml on jobs: their Python environment and their data."""

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
    """The Python environment of jobs, at /shared/env, and the settings of training runs."""

    python: Annotated[str, Field(pattern=types.PROGRAM)] = "/usr/bin/python3"
    requirements: tuple[Requirement, ...] = ()
    checkpoints: Annotated[str, Field(pattern=types.CHECKPOINTS)] | None = None
    """Where in S3 runs may copy their checkpoints (`S3Tier.of_cluster`): `bucket` or
    another bucket. `bucket` is the cluster's own, which is deleted with it. Not given:
    instances have access to none.
    """
    interruptions_per_machine_hour: Annotated[float, Field(gt=0, le=60)] | None = None
    """The rate that runs expect before they have seen any interruption; it sets how
    often they save. Not given: one a day.
    """

    def checkpoints_url(self, *, bucket: str) -> str | None:
        """Return the checkpoints' URL, given the cluster's own bucket."""
        own = f"s3://{bucket}/{CHECKPOINTS_PREFIX}"
        return own if self.checkpoints == "bucket" else self.checkpoints


class Data(Section):
    """The store of datasets, and the size of a node's cache."""

    store: Annotated[str, Field(pattern=types.STORE)] = "shared"
    """`shared` (a folder of the filesystem), `bucket` (the cluster's own) or another
    bucket. The first two are deleted with the cluster.
    """
    cache: Annotated[str, Field(pattern=types.FOLDER)] = "/scratch"
    """The folder on a node where every user gets a cache folder. /scratch is the node's
    own disk, and each user's jobs have a part of their own there. If the folder doesn't
    exist, the cache is in /var/tmp, which in a job ends with the job.
    """
    cache_gib: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Not given: 80 % of the free disk."""

    def store_url(self, *, bucket: str) -> str:
        """Return the store's URL, given the cluster's own bucket."""
        return {"shared": SHARED_STORE, "bucket": f"s3://{bucket}/{DATA_PREFIX}"}.get(
            self.store, self.store
        )

    @property
    def in_s3(self) -> bool:
        """Return whether the store is in S3.

        Reading it then needs boto3, and a role with the permission.
        """
        return self.store != "shared"
