"""The global settings of slurm.conf: the toolkit's own, then cluster.yaml's overrides.

Only settings that differ from Slurm's defaults, or that power saving depends on, are
stated. Each value's reason is beside it. Times are seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.errors import RenderError
from toolkit.render import options
from toolkit.render.overrides import apply_overrides
from toolkit.render.section import SettingsSection

if TYPE_CHECKING:
    from toolkit.render.context import SlurmContext

BIN: Final = "/opt/slurm-toolkit/bin"
HOOKS: Final = "/shared/.toolkit/hooks"
"""What slurmd runs. Each node has it, whatever its image: a path that is absent drains the node."""
REQUEUE_EXIT: Final = 85
"""A training job saved its work and asks to be requeued (toolkit.training)."""
MESSAGE_TIMEOUT: Final = 30
UNKILLABLE_STEP_TIMEOUT: Final = 180
"""At least five times MESSAGE_TIMEOUT, or busy nodes are drained for nothing."""
KILL_WAIT: Final = 60
"""Between SIGTERM and SIGKILL: a requeued job's time to save, half of a spot notice's."""
SLURMD_TIMEOUT: Final = 120
"""After it slurmctld sets a silent node DOWN. reconcile is quicker if EC2 gives a reason."""
REQUEUE_DELAY: Final = 10
"""Before a requeued job may start again; long enough for slurmctld to learn of its last step's
end."""
MAX_REQUEUES: Final = 1000
"""Each spot interruption is a requeue, and Slurm's own limit (5) ends in a held job.
toolkit.training has the budgets that stop a job which fails by itself."""
SCHEDULER_INTERVAL: Final = 5
"""Between scheduler passes: the next one finds a requeued job (Slurm's defaults: 30, 60)."""

Value = str | int | tuple[str, ...]


def sections(context: SlurmContext) -> tuple[SettingsSection, ...]:
    """Return every global setting for this cluster's version.

    Raises RenderError for a bad override.
    """
    try:
        options.check_range(context.version)
    except ValueError as error:
        raise RenderError(str(error)) from error
    own_sections = (
        _section(context, "Cluster", _cluster(context)),
        _section(context, "Power saving", _power_saving(context)),
        _section(context, "Timeouts", _timeouts()),
        _section(context, "Jobs", _jobs(context)),
        _section(context, "Scheduling and fair share", _scheduling(context)),
        _section(context, "Accounting", _accounting(context)),
        _section(context, "Node resources", _node_resources(context)),
        _section(context, "Logs", _logs()),
    )
    return apply_overrides(own_sections, context.overrides, context.version)


def _section(context: SlurmContext, title: str, values: dict[str, Value]) -> SettingsSection:
    rows = []
    for name, value in values.items():
        if isinstance(value, tuple):
            text = ",".join(options.supported(name, value, context.version))
        else:
            text = str(value)
        if text and options.unsupported_reason(name, "", context.version) is None:
            rows.append((name, text))
    return SettingsSection(title, tuple(rows))


def _cluster(context: SlurmContext) -> dict[str, Value]:
    return {
        "ClusterName": context.cluster,
        "SlurmctldHost": f"{context.head_hostname}({context.head_address})",
        "SlurmUser": "slurm",
        "AuthType": "auth/slurm",
        "CredType": "cred/slurm",
        # cred_expire is also how long a requeued job waits before 25.11.
        "AuthInfo": (f"cred_expire={REQUEUE_DELAY}",),
        "CommunicationParameters": ("block_null_hash", *_closed_doors(context)),
        "StateSaveLocation": "/srv/head/slurmctld",
        "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
        "SlurmctldPidFile": "/run/slurmctld/slurmctld.pid",
        "SlurmdPidFile": "/run/slurm/slurmd.pid",
        "SrunPortRange": "60001-63000",
        # The controller's default MailProg isn't installed, which it logs as an error.
        "MailProg": "/usr/bin/true",
    }


def _closed_doors(context: SlurmContext) -> tuple[str, ...]:
    """Return the word that keeps the daemons from answering HTTP.

    From 25.11 on they answer it on their own ports, to callers without the cluster's key. Slurm's
    metrics are read by it.
    """
    has_metrics = any(name.lower() == "metricstype" for name, _ in context.overrides)
    return () if has_metrics else ("disable_http",)


def _power_saving(context: SlurmContext) -> dict[str, Value]:
    return {
        # node_reg_mem_percent stays last: 25.05.0 misreads it when another parameter follows.
        "SlurmctldParameters": (
            "enable_configless",
            "idle_on_node_suspend",
            "node_reg_mem_percent=90",
        ),
        "ResumeProgram": f"{BIN}/slurm-resume",
        "SuspendProgram": f"{BIN}/slurm-suspend",
        "ResumeFailProgram": f"{BIN}/slurm-resume-fail",
        # It prepares nothing: its end makes slurmctld start the job at once.
        "PrologSlurmctld": f"{BIN}/slurm-prolog",
        "ResumeTimeout": context.resume_timeout,
        "SuspendTimeout": context.suspend_timeout,
        "SuspendTime": "INFINITE",
        # Named one by one: `nodes:COUNT` means another thing before 24.05.
        "SuspendExcNodes": context.static,
        "ResumeRate": 0,
        "SuspendRate": 0,
        "ReturnToService": 2,
    }


def _timeouts() -> dict[str, Value]:
    return {
        "SlurmdTimeout": SLURMD_TIMEOUT,
        "MessageTimeout": MESSAGE_TIMEOUT,
        "BatchStartTimeout": 180,
        "KillWait": KILL_WAIT,
        "UnkillableStepTimeout": UNKILLABLE_STEP_TIMEOUT,
    }


def _jobs(context: SlurmContext) -> dict[str, Value]:
    return {
        "JobRequeue": 1,
        "RequeueExit": REQUEUE_EXIT,
        "MaxBatchRequeue": MAX_REQUEUES,
        # Each attempt adds to the job's output instead of overwriting it.
        "JobFileAppend": 1,
        "MpiDefault": "none",
        # The user's own sbatch reads cli_filter.lua, and prints what the job would cost.
        "CliFilterPlugins": ("cli_filter/lua",) if context.submit_line else (),
        # Jobs have slurmd's own limit: EFA and NCCL pin more memory than the head's shells may.
        "PropagateResourceLimitsExcept": "MEMLOCK",
        # Contain: slurmd makes the job's own mounts before its first task (job_container.conf).
        "PrologFlags": ("Alloc", "Contain"),
        # The first name before 25.11, the second since.
        "JobContainerType": "job_container/tmpfs",
        "NamespaceType": "namespace/tmpfs",
        # The job's token for its AWS credentials: written, named to the tasks, removed.
        "Prolog": f"{HOOKS}/slurm-job-token",
        "TaskProlog": f"{HOOKS}/slurm-task-prolog",
        "Epilog": f"{HOOKS}/slurm-job-token",
    }


def _scheduling(context: SlurmContext) -> dict[str, Value]:
    return {
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": (
            "salloc_wait_nodes",
            "sbatch_wait_nodes",
            "nohold_on_prolog_fail",
            f"sched_interval={SCHEDULER_INTERVAL}",
            f"bf_interval={SCHEDULER_INTERVAL}",
            "bf_continue",
            "requeue_on_resume_failure",
            f"requeue_delay={REQUEUE_DELAY}",
        ),
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        # Partitions are in cluster.yaml; an admin may make QOS that preempt each other.
        "PreemptType": f"preempt/{'partition_prio' if context.has_preemption else 'qos'}",
        "PreemptMode": "REQUEUE",
        # The job's own --signal is sent when its grace time begins: it saves as for a time limit.
        "PreemptParameters": ("send_user_signal",),
        "PriorityType": "priority/multifactor",
        "PriorityFlags": ("MAX_TRES",),
        "PriorityDecayHalfLife": "14-0",
        "PriorityMaxAge": "7-0",
        "PriorityWeightFairshare": 100_000,
        "PriorityWeightQOS": 20_000,
        "PriorityWeightAge": 10_000,
    }


def _accounting(context: SlurmContext) -> dict[str, Value]:
    kinds = tuple(f"gres/gpu:{kind}" for kind in context.gpu_kinds)
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        # An address: nodes, whose jobs may call sacct, can't resolve the head's name.
        "AccountingStorageHost": context.head_address,
        "AccountingStorageEnforce": ("associations", "limits", "qos", "safe"),
        "AccountingStorageTRES": ("gres/gpu", *kinds) if context.has_gpus else (),
        "AccountingStoreFlags": ("job_comment", "job_extra", "job_script"),
        # slurmdbd.conf has the same words.
        "PrivateData": context.private_data,
        "JobAcctGatherType": f"jobacct_gather/{'linux' if context.local else 'cgroup'}",
        "JobAcctGatherFrequency": 30,
    }


def _node_resources(context: SlurmContext) -> dict[str, Value]:
    gres: dict[str, Value] = {"GresTypes": "gpu"} if context.has_gpus else {}
    if context.local:
        return gres | {
            # System containers: no cgroup to delegate, and fewer cores than the nodes claim.
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SlurmdParameters": ("config_overrides",),
        }
    return gres | {
        "ProctrackType": "proctrack/cgroup",
        "TaskPlugin": ("task/cgroup", "task/affinity"),
    }


def _logs() -> dict[str, Value]:
    return {
        "SlurmctldDebug": "info",
        "SlurmdDebug": "info",
        # GLOB_SILENCE: Debian's plugstack.conf has a glob, which is otherwise logged as an error.
        "DebugFlags": ("Power", "GLOB_SILENCE"),
        "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurm/slurmd.log",
    }
