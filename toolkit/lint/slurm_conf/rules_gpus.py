"""Rules for nodes with GPUs: which of their cores are beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.rule import MAN, ConfRule, Hit, gpus_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.lint.slurm_conf.parser import SlurmConf
    from toolkit.render.versions import SlurmVersion

TWO_PROCESSORS: Final = 8
"""GPUs of a node from which on it has two processors, on EC2 and elsewhere."""
_CORES: Final = ("Sockets", "SocketsPerBoard", "Boards", "CoresPerSocket")


def _cores_unknown(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    for node in conf.nodes:
        if gpus_of(node) >= TWO_PROCESSORS and not any(node.get(name) for name in _CORES):
            text = f"{node.name} has no Sockets: a job's cores may be on the other processor"
            fix = "Sockets=2 CoresPerSocket=… ThreadsPerCore=2; in cluster.yaml, shape.sockets"
            yield Hit("NodeName", f"{text} than its GPUs", fix, node.line)


RULES: Final = (ConfRule("cores-unknown", Severity.WARNING, MAN + "#OPT_Sockets", _cores_unknown),)
