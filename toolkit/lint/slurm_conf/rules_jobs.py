"""Rules for jobs that lose their nodes: requeueing, time to save, prologs, spelling."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.rule import MAN, ConfRule, Hit, at_setting, gpus_of, missing_word
from toolkit.render import options
from toolkit.render.settings import REQUEUE_EXIT
from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolkit.lint.slurm_conf.parser import SlurmConf

SPOT_NOTICE: Final = 120
SIGNAL_DELAY: Final = 10
"""Seconds of a spot notice that pass before the job's processes get their signal."""
SHORTEST_KILL_WAIT: Final = 30
FEWEST_REQUEUES: Final = 20
LONGEST_REQUEUE_DELAY: Final = 60
SHORTEST_BATCH_START: Final = 60
LEAST_SHARE: Final = 0.75
"""Of a node's CPUs, for a job with all of its GPUs: sites reserve some."""

# Words that a cloud cluster depends on; slurmctld accepts a misspelled one silently.
_WORDS: Final = {
    "SlurmctldParameters": (
        "enable_configless",
        "enable_expedited_requeue",
        "idle_on_node_suspend",
        "max_powered_nodes",
        "node_reg_mem_percent",
        "power_save_interval",
        "power_save_min_interval",
        "reboot_from_controller",
    ),
    "SchedulerParameters": (
        "nohold_on_prolog_fail",
        "requeue_delay",
        "requeue_on_resume_failure",
        "salloc_wait_nodes",
        "sbatch_wait_nodes",
    ),
}
_SIMILARITY: Final = 0.85
OWN_EPILOG: Final = "/slurm-job-token"
"""The toolkit's Epilog, which removes a job's token and checks nothing."""


def _removed_option(conf: SlurmConf, version: SlurmVersion) -> Iterator[Hit]:
    for setting in conf.settings.values():
        for word in ("", *setting.words):
            problem = options.unsupported_reason(setting.name, word, version)
            if problem is not None:
                name = word.partition("=")[0] or setting.name
                yield Hit(setting.name, problem, f"remove {name}", setting.line)


def _spelling(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    for name, known_words in _WORDS.items():
        for word in (member.partition("=")[0].lower() for member in conf.words(name)):
            matches = get_close_matches(word, known_words, n=1, cutoff=_SIMILARITY)
            if matches and word not in known_words:
                text = f"{word} is not a parameter of {name}, and slurmctld does not report it"
                yield at_setting(conf, name, text, f"write {matches[0]}")


def _requeue(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if conf.number("JobRequeue", 1) == 0:
        text = "a job that loses a node ends, and is not requeued"
        yield at_setting(conf, "JobRequeue", text, "JobRequeue=1")


def _requeue_exit(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if not has_code(conf.words("RequeueExit"), REQUEUE_EXIT):
        text = f"a training job that saved and exits with {REQUEUE_EXIT} is not requeued"
        yield at_setting(conf, "RequeueExit", text, f"RequeueExit={REQUEUE_EXIT}")
    if has_code(conf.words("RequeueExitHold"), REQUEUE_EXIT):
        text = f"a training job that saved and exits with {REQUEUE_EXIT} is held"
        yield at_setting(conf, "RequeueExitHold", text, f"remove {REQUEUE_EXIT}")


def _requeue_bugs(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if has_code(conf.words("RequeueExit"), 1):
        text = "most failing programs exit with 1: a job with a bug is requeued again and again"
        yield at_setting(conf, "RequeueExit", text, "remove 1")


def has_code(words: Iterable[str], code: int) -> bool:
    """Return whether a list of codes and ranges has the code.

    Other words are ignored: slurmctld refuses them.
    """
    for word in words:
        first, _, last = word.partition("-")
        last = last or first
        if first.isdecimal() and last.isdecimal() and int(first) <= code <= int(last):
            return True
    return False


def _max_requeue(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    max_requeues = conf.number("MaxBatchRequeue", 5)
    if max_requeues < FEWEST_REQUEUES:
        text = f"after {max_requeues} requeues a job is held, and each spot interruption is one"
        yield at_setting(conf, "MaxBatchRequeue", text, "MaxBatchRequeue=1000")


def _kill_wait(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    wait = conf.number("KillWait", 30)
    if wait > SPOT_NOTICE - SIGNAL_DELAY:
        text = f"{wait} s from SIGTERM to SIGKILL: EC2 takes the instance earlier, during the save"
        yield at_setting(
            conf, "KillWait", text, f"KillWait={SPOT_NOTICE - 2 * SIGNAL_DELAY - 10} at most"
        )
    elif wait < SHORTEST_KILL_WAIT:
        text = f"{wait} s after SIGTERM is too short to save a checkpoint"
        yield at_setting(conf, "KillWait", text, "KillWait=60")


def _over_time(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if conf.number("OverTimeLimit", 0) == -1:
        text = "no job ends at its time limit: its instances run until somebody cancels it"
        yield at_setting(conf, "OverTimeLimit", text, "OverTimeLimit=0")


def _requeue_delay(conf: SlurmConf, version: SlurmVersion) -> Iterator[Hit]:
    if version < SlurmVersion(25, 11):
        value, setting = conf.parameter("AuthInfo", "cred_expire"), "AuthInfo"
        text = "before Slurm 25.11 a requeued job waits for AuthInfo=cred_expire ({} s)"
        fix = "AuthInfo=cred_expire=10"
    else:
        value, setting = (
            conf.parameter("SchedulerParameters", "requeue_delay"),
            "SchedulerParameters",
        )
        text = "a requeued job waits for requeue_delay ({} s)"
        fix = "add requeue_delay=10 to SchedulerParameters"
    seconds = int(value) if value and value.isdecimal() else 120
    if seconds > LONGEST_REQUEUE_DELAY:
        yield at_setting(conf, setting, text.format(seconds), fix)


def _expedited(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    name = "SlurmctldParameters"
    epilog = conf.get("Epilog")
    checks = epilog is not None and not epilog.value.endswith(OWN_EPILOG)
    if conf.parameter(name, "enable_expedited_requeue") is not None and not checks:
        text = "without an Epilog that checks the node, a job that fails by itself is held"
        fix = "set an Epilog, or remove enable_expedited_requeue"
        yield at_setting(conf, name, text, fix)


def _prolog(conf: SlurmConf, _version: SlurmVersion) -> Iterable[Hit]:
    if conf.get("Prolog") is None:
        return ()
    text = "when the Prolog fails, Slurm holds the job and does not start it elsewhere"
    return missing_word(conf, "SchedulerParameters", "nohold_on_prolog_fail", text)


def _prolog_flags(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    flags = {word.lower() for word in conf.words("PrologFlags")}
    if conf.get("Prolog") is not None and not flags & {"alloc", "contain", "x11"}:
        text = "the Prolog runs only at the job's first job step, long after its nodes are paid for"
        yield at_setting(conf, "PrologFlags", text, "PrologFlags=Alloc,Contain")


def _wait_nodes(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    for word, starter in (("sbatch_wait_nodes", "batch script"), ("salloc_wait_nodes", "salloc")):
        text = f"a {starter} of several nodes starts when its first node is up"
        yield from missing_word(conf, "SchedulerParameters", word, text)


def _unkillable(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    message_timeout = conf.number("MessageTimeout", 10)
    step_timeout = conf.number("UnkillableStepTimeout", 60)
    if step_timeout < 5 * message_timeout:
        text = f"{step_timeout} s is below 5 * MessageTimeout ({message_timeout} s): nodes drain"
        fix = f"UnkillableStepTimeout={6 * message_timeout}"
        yield at_setting(conf, "UnkillableStepTimeout", text, fix)


def _batch_start(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    seconds = conf.number("BatchStartTimeout", 10)
    if seconds < SHORTEST_BATCH_START:
        text = f"a new instance may take longer than {seconds} s to start the batch script"
        yield at_setting(conf, "BatchStartTimeout", text, "BatchStartTimeout=180")


def _preempt(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    kind, modes = conf.get("PreemptType"), {word.upper() for word in conf.words("PreemptMode")}
    if modes & {"SUSPEND"}:
        text = "a suspended job keeps its nodes, and they cost money meanwhile"
        yield at_setting(conf, "PreemptMode", text, "PreemptMode=REQUEUE")
    is_off = kind is None or kind.value.lower() == "preempt/none"
    if is_off and modes - {"OFF", "GANG"}:
        text = "slurmctld does not start: PreemptMode needs a PreemptType"
        yield at_setting(conf, "PreemptMode", text, "PreemptType=preempt/qos, or PreemptMode=OFF")


def _preempt_signal(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    kind = conf.get("PreemptType")
    preempts = kind is not None and kind.value.lower() != "preempt/none"
    sends_signal = conf.parameter("PreemptParameters", "send_user_signal") is not None or (
        conf.parameter("SlurmctldParameters", "preempt_send_user_signal") is not None
    )
    if preempts and not sends_signal:
        text = "a preempted job gets SIGTERM, not its own --signal: it ends without a save"
        fix = "PreemptParameters=send_user_signal"
        yield at_setting(conf, "PreemptParameters", text, fix)


def _preempt_grace(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    kind = conf.get("PreemptType")
    if kind is None or kind.value.lower() != "preempt/partition_prio":
        return
    tiers = [int(part.get("PriorityTier") or 1) for part in conf.partitions]
    for part, tier in zip(conf.partitions, tiers, strict=True):
        if tier < max(tiers) and part.get("GraceTime") in ("", "0"):
            text = f"jobs of {part.name} are preempted without time to save"
            yield Hit("GraceTime", text, f"GraceTime={SPOT_NOTICE} for {part.name}", part.line)


def _gpu_share(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    """Find partitions that give a job with all GPUs too few CPUs.

    Only CPUs and counts of GPUs on the line are considered.
    """
    default_share = conf.parameter("JobDefaults", "DefCpuPerGPU")
    for part in conf.partitions:
        members = set(conf.expand_hostlist(part.get("Nodes")))
        cpus_per_gpu = part.get("DefCpuPerGPU") or default_share or "0"
        if part.get("OverSubscribe").upper() == "EXCLUSIVE" or not cpus_per_gpu.isdecimal():
            continue
        for node in conf.nodes:
            cpus, gpus = node.get("CPUs"), gpus_of(node)
            if not (gpus and cpus.isdecimal() and members & set(conf.expand_hostlist(node.name))):
                continue
            if int(cpus_per_gpu) * gpus < LEAST_SHARE * int(cpus):
                cpus_text = f"{int(cpus_per_gpu) * gpus}" if int(cpus_per_gpu) else "one a task"
                subject = f"in {part.name}, a job with all GPUs of {node.name}"
                fix = f"DefCpuPerGPU={int(cpus) // gpus} where all nodes have them, or --exclusive"
                text = f"{subject} has {cpus_text} of {cpus} CPUs"
                yield Hit("DefCpuPerGPU", text, fix, part.line)


def _memory_lock(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    """Find the submitting shell's limit on memory that EFA must pin.

    See https://slurm.schedmd.com/faq.html#memlock. slurmctld refuses both settings together.
    """
    sent_limits = {word.upper() for word in conf.words("PropagateResourceLimits")} or {"ALL"}
    kept_limits = {word.upper() for word in conf.words("PropagateResourceLimitsExcept")}
    if sent_limits & {"ALL", "MEMLOCK"} and not kept_limits & {"ALL", "MEMLOCK"}:
        text = "a job may lock no more memory than the shell that submitted it: EFA needs more"
        fix = "PropagateResourceLimitsExcept=MEMLOCK"
        yield at_setting(conf, "PropagateResourceLimitsExcept", text, fix)


def _metrics(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if conf.get("MetricsType") is not None and conf.words("PrivateData"):
        text = "with PrivateData Slurm turns its metrics off, and reports nothing"
        fix = "remove MetricsType or PrivateData"
        yield at_setting(conf, "MetricsType", text, fix)


_E, _W = Severity.ERROR, Severity.WARNING
RULES: Final = (
    ConfRule("option-gone", _E, MAN, _removed_option),
    ConfRule("spelling", _E, MAN + "#OPT_SlurmctldParameters", _spelling),
    ConfRule("job-requeue", _E, MAN + "#OPT_JobRequeue", _requeue),
    ConfRule("requeue-exit", _E, MAN + "#OPT_RequeueExit", _requeue_exit),
    ConfRule("requeue-bugs", _W, MAN + "#OPT_RequeueExit", _requeue_bugs),
    ConfRule("max-batch-requeue", _W, MAN + "#OPT_MaxBatchRequeue", _max_requeue),
    ConfRule("kill-wait", _W, MAN + "#OPT_KillWait", _kill_wait),
    ConfRule("over-time-limit", _E, MAN + "#OPT_OverTimeLimit", _over_time),
    ConfRule("requeue-delay", _W, "https://github.com/aws/aws-parallelcluster/issues/5670",
         _requeue_delay),
    ConfRule("expedited-requeue", _E, MAN + "#OPT_enable_expedited_requeue", _expedited),
    ConfRule("prolog-hold", _E, MAN + "#OPT_nohold_on_prolog_fail", _prolog),
    ConfRule("prolog-flags", _W, MAN + "#OPT_PrologFlags", _prolog_flags),
    ConfRule("wait-nodes", _W, MAN + "#OPT_sbatch_wait_nodes", _wait_nodes),
    ConfRule("unkillable-step", _E, MAN + "#OPT_UnkillableStepTimeout", _unkillable),
    ConfRule("batch-start", _W, MAN + "#OPT_BatchStartTimeout", _batch_start),
    ConfRule("preempt-mode", _E, MAN + "#OPT_PreemptMode", _preempt),
    ConfRule("preempt-signal", _W, MAN + "#OPT_send_user_signal", _preempt_signal),
    ConfRule("preempt-grace", _W, MAN + "#OPT_GraceTime", _preempt_grace),
    ConfRule("gpu-share", _W, MAN + "#OPT_DefCpuPerGPU", _gpu_share),
    ConfRule("memory-lock", _W, MAN + "#OPT_PropagateResourceLimitsExcept", _memory_lock),
    ConfRule("metrics-private", _W, MAN + "#OPT_PrivateData", _metrics),
)  # fmt: skip
