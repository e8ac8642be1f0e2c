"""A batch script's request, read as sbatch would read it. Pure.

The command line wins over the environment, and the environment over the script (sbatch(1)).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from slurmplugins.model.queued_job import count_tasks
from toolkit.lint.batch_script import script as batch_script
from toolkit.quote.errors import BadRequest
from toolkit.quote.sbatch_names import full_name
from toolkit.render.slurm_time import limit_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolkit.lint.batch_script.script import Directive

# sbatch(1), INPUT ENVIRONMENT VARIABLES; only options that change the cost, or who pays.
_VARIABLES: Final = (
    "account", "array_inx", "constraint", "cpus_per_gpu", "exclusive", "gpus", "gpus_per_node",
    "gpus_per_task", "gres", "job_name", "mem_per_cpu", "mem_per_gpu", "mem_per_node", "partition",
    "qos", "timelimit", "wckey",
)  # fmt: skip
_OPTION_OF: Final = {"array_inx": "array", "mem_per_node": "mem", "timelimit": "time"}
_COUNT: Final = re.compile(r"\d{1,9}", re.ASCII)
_NODES: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
_MEMORY: Final = re.compile(r"(\d{1,12})([kmgt]?)b?", re.ASCII | re.IGNORECASE)
_MIB: Final = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024**2}
_GPU: Final = re.compile(r"(?:gres[:/])?gpu(?::([A-Za-z][A-Za-z0-9_.-]*))?(?:[:=](\d{1,6}))?")
_HET_JOB: Final = re.compile(r"^#SBATCH\s+(?:hetjob|packjob)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Gpus:
    """A number of GPUs of one kind, or of any."""

    count: int = 0
    kind: str = ""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job before it is submitted. Memory is MiB; None: Slurm's default."""

    name: str
    partitions: tuple[str, ...]
    account: str = ""
    qos: str = ""
    wckey: str = ""  # its project
    time_limit: int | None = None  # seconds
    unlimited: bool = False  # it asked for no limit
    array_tasks: int = 1
    nodes: int = 1
    most_nodes: int = 0
    ntasks: int = 0  # 0: one a node
    ntasks_per_node: int = 0
    cpus_per_task: int = 0  # 0: not stated
    memory_per_node: int | None = None  # 0: all of it
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None
    cpus_per_gpu: int = 0
    gpus: Gpus = Gpus()  # of the whole job
    gpus_per_node: Gpus = Gpus()
    gpus_per_task: Gpus = Gpus()
    features: tuple[str, ...] = ()
    exclusive: bool = False
    begin: str = ""

    @property
    def limit(self) -> int:
        """Return the time limit in seconds. Raises ValueError where there is none."""
        if self.time_limit is None:
            raise ValueError(f"{self.name} has no time limit")
        return self.time_limit


def read_request(
    text: str, script: str, options: Sequence[str], environment: Mapping[str, str]
) -> JobRequest:
    """Return what a script requests. Raises QuoteError."""
    if _HET_JOB.search(text) or ":" in options:
        raise BadRequest(
            "a heterogeneous job has no quote: its components have prices of their own",
            next_step="quote each component as a script of its own",
        )
    outside = (
        *_of_environment(environment),
        *batch_script.outside_directives(options, "on the command line"),
    )
    parsed = batch_script.parse(text, outside_options=outside)
    values = {
        full_name(directive.name): directive.value for directive in parsed.directives.values()
    }
    return _request(values, PurePath(script).name)


def _of_environment(environment: Mapping[str, str]) -> Iterator[Directive]:
    for name in _VARIABLES:
        value = environment.get(f"SBATCH_{name.upper()}")
        if value:
            option = _OPTION_OF.get(name, name).replace("_", "-")
            yield from batch_script.outside_directives([f"--{option}={value}"], name)


def _request(values: Mapping[str, str], script: str) -> JobRequest:
    nodes, most_nodes = _nodes(values["nodes"]) if "nodes" in values else (1, 0)
    limit = values.get("time", "")
    return JobRequest(
        name=values.get("job-name") or script,
        partitions=tuple(filter(None, values.get("partition", "").split(","))),
        account=values.get("account", ""),
        qos=values.get("qos", ""),
        wckey=values.get("wckey", ""),
        time_limit=parse_time(limit) if limit else None,
        unlimited=bool(limit) and parse_time(limit) is None,
        array_tasks=count_tasks(values["array"]) if values.get("array") else 1,
        nodes=nodes,
        most_nodes=most_nodes,
        ntasks=_count(values, "ntasks"),
        ntasks_per_node=_count(values, "ntasks-per-node") or _count(values, "tasks-per-node"),
        cpus_per_task=_count(values, "cpus-per-task"),
        memory_per_node=_memory(values, "mem"),
        memory_per_cpu=_memory(values, "mem-per-cpu"),
        memory_per_gpu=_memory(values, "mem-per-gpu"),
        cpus_per_gpu=_count(values, "cpus-per-gpu"),
        gpus=_gpus(values, "gpus"),
        gpus_per_node=_gpus(values, "gpus-per-node" if "gpus-per-node" in values else "gres"),
        gpus_per_task=_gpus(values, "gpus-per-task"),
        features=_features(values.get("constraint", "")),
        exclusive="exclusive" in values,
        begin=values.get("begin", ""),
    )


def parse_time(text: str) -> int | None:
    """Return a limit in seconds; None for no limit. Raises BadRequest."""
    try:
        return limit_seconds(text)
    except ValueError as error:
        raise BadRequest(
            f"sbatch: invalid time limit {text!r}",
            next_step="write minutes, HH:MM:SS or DAYS-HH:MM:SS",
        ) from error


def _nodes(text: str) -> tuple[int, int]:
    match = _NODES.fullmatch(text)
    if match is None or int(match[1]) < 1:
        raise BadRequest(f"sbatch: invalid node count {text!r}", next_step="write N or MIN-MAX")
    return int(match[1]), int(match[2] or match[1])


def _count(values: Mapping[str, str], name: str) -> int:
    text = values.get(name, "0")
    if _COUNT.fullmatch(text) is None:
        raise BadRequest(f"sbatch: invalid number {text!r} for --{name}")
    return int(text)


def _memory(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise BadRequest(f"sbatch: invalid --{name} specification {text!r}")
    return int(int(match[1]) * _MIB[match[2].lower()])


def _gpus(values: Mapping[str, str], name: str) -> Gpus:
    text = values.get(name, "")
    if not text:
        return Gpus()
    if name == "gres":
        return _gres(text)
    counts = [part.rpartition(":") for part in text.split(",")]
    if not all(_COUNT.fullmatch(number) for _, _, number in counts):
        raise BadRequest(f"sbatch: invalid --{name} specification {text!r}")
    kinds = {kind for kind, _, _ in counts}
    return Gpus(sum(int(number) for _, _, number in counts), kinds.pop() if len(kinds) == 1 else "")


def _gres(text: str) -> Gpus:
    """Return the GPUs of a node in `--gres=gpu:a10g:2,shard:4`."""
    matches = [match for part in text.split(",") if (match := _GPU.fullmatch(part))]
    kinds = {match[1] or "" for match in matches}
    return Gpus(
        sum(int(match[2] or 1) for match in matches), kinds.pop() if len(kinds) == 1 else ""
    )


def _features(text: str) -> tuple[str, ...]:
    """Return the features that each node must have.

    Alternatives and counts are left out, so a quote may show more offerings than the job has.
    """
    return tuple(filter(None, text.split("&"))) if re.fullmatch(r"[\w.&-]*", text) else ()
