"""Ids and names that AWS chose, known only from the stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class StackFacts:
    """Values read from the stack's resources once it exists."""

    bucket: str
    secret_id: str
    subnets: Mapping[str, str]  # by zone
    shared_dns: str
    shared_mount: str  # the filesystem's name for mounting
    head_volume: str  # of Slurm's state and the databases
    backup_bucket: str
    mlflow_role: str = ""  # ARN; empty: no MLflow
    log_group: str = ""  # empty: logs stay on the machines
    heartbeat_namespace: str = ""  # empty: no alarm waits for a heartbeat
    reads_metrics: bool = False  # the head reaches CloudWatch, and may ask it
    nat_gateway: str = ""  # empty: there is none
    slurm_cluster: str = ""  # of a join: the site's ClusterName
    governor_folder: str = ""  # of a join: where its burst governor keeps what was spent

    @property
    def shared_source(self) -> str:
        """Return the source argument for `mount -t lustre`."""
        return f"{self.shared_dns}@tcp:/{self.shared_mount}"
