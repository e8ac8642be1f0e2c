"""The long options of sbatch, to find a misspelt one.

From the table of options in Slurm's src/common/slurm_opt.c, of 24.11.5 to 26.05.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from toolkit.quote.errors import UnknownOption

_LISTED: Final = """
account acctg-freq array autocomplete batch bb bbf begin chdir cluster cluster-constraint
clusters comment constraint consolidate-segments container container-id contiguous core-spec
cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency
distribution error exclude exclusive export export-file extra extra-node-info get-user-env gid
gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help hint
hold ignore-pbs input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem
mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-kill no-requeue nodefile nodelist nodes
ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres
oom-kill-step open-mode output overcommit oversubscribe parsable partition prefer priority
profile propagate qos quiet reboot requeue reservation resv-ports segment signal
sockets-per-node spread-job spread-segments stepmgr switches tasks-per-node test-only
thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid usage use-min-nodes
verbose version wait wait-all-nodes wckey wrap
"""
NAMES: Final = frozenset(_LISTED.split())


def full_name(name: str) -> str:
    """Return the option that sbatch takes for this name.

    As getopt_long does, sbatch takes the beginning of one option's name for the whole. Raises
    UnknownOption.
    """
    if name in NAMES:
        return name
    candidates = sorted(item for item in NAMES if item.startswith(name)) if name else []
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        listed = ", ".join(f"--{item}" for item in candidates)
        raise UnknownOption(f"sbatch: option --{name} is ambiguous", next_step=f"one of {listed}")
    close = get_close_matches(name, NAMES, n=1)
    raise UnknownOption(
        f"sbatch: unrecognized option --{name}",
        next_step=f"did you mean --{close[0]}?" if close else "`sbatch --help` lists the options",
    )
