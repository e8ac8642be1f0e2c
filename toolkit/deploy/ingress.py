"""The connections that the security groups of a cluster allow, each with its reason. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmplugins.config.node import SLURMCTLD_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from ipaddress import IPv4Network

SLURMD_PORT = 6818
SLURMDBD_PORT = 6819
MLFLOW_PORT = 5000
SWEEPS_PORT = 5100
IDENT_PORT = 113
SRUN_PORTS = (60001, 63000)
HEAD_GROUP, COMPUTE_GROUP, LOGIN_GROUP = "HeadGroup", "ComputeGroup", "LoginGroup"
STORAGE_GROUP = "StorageGroup"
LUSTRE_PORTS = ((988, 988), (1018, 1023))


@dataclass(frozen=True, slots=True)
class IngressRule:
    """A permission for connections from one security group to another."""

    id: str
    to: str
    source: str
    protocol: str
    ports: tuple[int, int] | None  # None: all
    why: str
    network: str = ""  # in place of a security group


def site_ingress_rules(networks: Iterable[IPv4Network]) -> tuple[IngressRule, ...]:
    """Return what a join allows, to the site's networks and its nodes."""
    ports = (0, 65535)
    why = "slurmctld, srun and MPI of the site"
    compute = COMPUTE_GROUP
    return (
        *(
            IngressRule(f"ComputeFromSite{at}", compute, "", "tcp", ports, why, str(network))
            for at, network in enumerate(networks)
        ),
        IngressRule("ComputeFromCompute", compute, compute, "-1", None, "MPI, NCCL and EFA"),
    )


def ingress_rules(*, login_nodes: bool = False) -> tuple[IngressRule, ...]:
    """Return the allowed connections."""
    rules = [*_head_and_compute_rules()]
    clients = [("Head", HEAD_GROUP), ("Compute", COMPUTE_GROUP)]
    if login_nodes:
        rules += _login_rules()
        clients.append(("Login", LOGIN_GROUP))
    for name, source in (*clients, ("Itself", STORAGE_GROUP)):
        rules.extend(
            IngressRule(f"StorageFrom{name}{at}", STORAGE_GROUP, source, "tcp", ports, "Lustre")
            for at, ports in enumerate(LUSTRE_PORTS)
        )
    rules.extend(
        IngressRule(f"{name}FromStorage{at}", group, STORAGE_GROUP, "tcp", ports, "Lustre")
        for name, group in clients
        for at, ports in enumerate(LUSTRE_PORTS)
    )
    return tuple(rules)


def _head_and_compute_rules() -> Iterator[IngressRule]:
    head, compute = HEAD_GROUP, COMPUTE_GROUP
    yield _rule("HeadFromSlurmd", head, compute, SLURMCTLD_PORT, "slurmctld")
    yield _rule("HeadFromSacct", head, compute, SLURMDBD_PORT, "slurmdbd, for sacct")
    yield IngressRule("HeadFromSrun", head, compute, "tcp", SRUN_PORTS, "srun (SrunPortRange)")
    yield _rule("HeadFromRuns", head, compute, MLFLOW_PORT, "MLflow")
    yield _rule("HeadFromSweeps", head, compute, SWEEPS_PORT, "Optuna's storage")
    yield IngressRule("ComputeFromHead", compute, head, "tcp", (0, 65535), "slurmd and srun")
    yield IngressRule("ComputeFromCompute", compute, compute, "-1", None, "MPI, NCCL and EFA")


def _login_rules() -> Iterator[IngressRule]:
    """Yield what Slurm's commands, MLflow's and Optuna's clients of login nodes need."""
    head, compute, login = HEAD_GROUP, COMPUTE_GROUP, LOGIN_GROUP
    yield _rule("HeadFromLogin", head, login, SLURMCTLD_PORT, "slurmctld")
    yield _rule("HeadFromLoginSacct", head, login, SLURMDBD_PORT, "slurmdbd, for sacct")
    yield _rule("HeadFromLoginRuns", head, login, MLFLOW_PORT, "MLflow")
    yield _rule("HeadFromLoginSweeps", head, login, SWEEPS_PORT, "Optuna's storage")
    yield _rule("ComputeFromLogin", compute, login, SLURMD_PORT, "srun starts steps at slurmd")
    yield _rule("LoginFromHead", login, head, SLURMD_PORT, "slurmctld sends sackd new settings")
    yield _rule("LoginFromIdent", login, head, IDENT_PORT, "the head asks whose a connection is")
    for name, source in (("Slurmctld", head), ("Slurmd", compute)):
        why = "answers to srun (SrunPortRange)"
        yield IngressRule(f"LoginFrom{name}", login, source, "tcp", SRUN_PORTS, why)


def _rule(rule_id: str, to: str, source: str, port: int, why: str) -> IngressRule:
    return IngressRule(rule_id, to, source, "tcp", (port, port), why)
