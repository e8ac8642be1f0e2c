"""Rules about jobs that may go to racks and to the cloud: limits, GPUs, licences, requeueing."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from toolkit.join.preflight.accounts import UNFIT_LAUNCHES
from toolkit.join.preflight.cloud import AUTODETECT
from toolkit.join.preflight.findings import Hit, Origin, SiteRule
from toolkit.join.preflight.versions import series
from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.parser import parse
from toolkit.lint.slurm_conf.rule import MAN
from toolkit.lint.slurm_conf.rules_jobs import has_code
from toolkit.render.settings import REQUEUE_EXIT
from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.preflight.facts import PreflightFacts

GRES: Final = "https://slurm.schedmd.com/gres.conf.html"
LIMITS: Final = ("associations", "limits", "qos", "safe")
DATABASE: Final = "accounting_storage/slurmdbd"
RETURN_ALWAYS: Final = 2
NVIDIA_SINCE: Final = SlurmVersion(24, 11)
"""AutoDetect=nvidia reads sysfs, and needs no library (gres.conf(5))."""


def _select_type(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    kind = facts.value("SelectType")
    if kind and kind != "select/cons_tres":
        text = f"with {kind} each job takes whole nodes, and pays for all of their GPUs"
        fix = "Change it while no job runs: slurmctld loses jobs with the change."
        yield Hit(facts.origin("SelectType"), text, fix, "SelectType=select/cons_tres")


def _select_memory(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    value = facts.value("SelectTypeParameters")
    if facts.value("SelectType") == "select/cons_tres" and "memory" not in value.lower():
        text = f"{value or 'SelectTypeParameters'} does not count memory: two jobs may take it all"
        setting = "SelectTypeParameters=CR_Core_Memory"
        fix = "Count memory too; jobs then need --mem, or a DefMemPerCPU."
        yield Hit(facts.origin("SelectTypeParameters"), text, fix, setting)


def _gres_types(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    ours = "grestypes" in cloud.own_settings
    if cloud.gpu_nodes and not ours and "gpu" not in facts.words("GresTypes"):
        text = f"GresTypes lacks gpu: slurmctld leaves out the GPUs of {cloud.gpu_nodes}, and"
        text += " refuses jobs that ask for one"
        setting = facts.line_with("GresTypes", add=("gpu",))
        yield Hit(facts.origin("GresTypes"), text, "Add gpu.", setting)


def _autodetect(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    file = facts.files.get("gres.conf")
    setting = None if file is None else parse(file.text).get("AutoDetect")
    if file is None or setting is None or not cloud.gpu_nodes:
        return
    if setting.value.lower() not in AUTODETECT:
        text = f"AutoDetect={setting.value} comes to nodes by configless, and their slurmd lacks"
        text += " that library: they register without GPUs, and are drained"
        version = series(facts.site.version)
        kind = "nvidia" if version is not None and version >= NVIDIA_SINCE else "off"
        fix = "Let racks keep it, and set another for cloud nodes; slurm.conf has their GPUs."
        line = f"NodeName={cloud.gpu_nodes} AutoDetect={kind}"
        yield Hit(Origin(file.path, setting.line), text, fix, line)


def _gpu_tres(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    words = facts.words("AccountingStorageTRES")
    if cloud.gpu_nodes and "gres/gpu" not in {word.lower() for word in words}:
        kinds = [f"gres/gpu:{kind}" for kind in cloud.gpu_kinds]
        text = "slurmdbd does not count GPUs: no report and no limit can name them"
        setting = ",".join(("gres/gpu", *kinds))
        fix = "Add GPUs, the kinds too, and restart slurmctld."
        origin = facts.origin("AccountingStorageTRES")
        yield Hit(origin, text, fix, f"AccountingStorageTRES={setting}")


def _no_accounting(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    kind = facts.value("AccountingStorageType")
    if kind != DATABASE:
        text = "without slurmdbd there are no reports, no budgets and no `sacct`"
        fix = "Set up slurmdbd before jobs may cost money."
        origin = facts.origin("AccountingStorageType")
        yield Hit(origin, text, fix, f"AccountingStorageType={DATABASE}")


def _enforcement(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    words = {word.lower() for word in facts.words("AccountingStorageEnforce")}
    missing = [word for word in LIMITS if word not in words]
    if facts.value("AccountingStorageType") == DATABASE and missing and "all" not in words:
        text = f"Slurm does not enforce {', '.join(missing)}: no budget keeps a job from the cloud"
        fix = "Enforce them, once every user has an association."
        origin = facts.origin("AccountingStorageEnforce")
        yield Hit(origin, text, fix, f"AccountingStorageEnforce={','.join(LIMITS)}")


def _part_limits(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    if facts.value("EnforcePartLimits").upper() in {"ALL", "YES"}:
        text = "a job for racks or cloud is refused if it exceeds the limits of one of the two"
        fix = "Let one partition of the job's list be enough."
        yield Hit(facts.origin("EnforcePartLimits"), text, fix, "EnforcePartLimits=ANY")


def _requeue(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    if facts.number("JobRequeue") == 0:
        text = "a job whose spot instance is interrupted fails, and does not run again"
        fix = "Let batch jobs be requeued, or use --requeue in each job for the cloud."
        yield Hit(facts.origin("JobRequeue"), text, fix, "JobRequeue=1")


def _requeue_exit(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    """Find a site that does not requeue jobs which ask for it.

    Job scripts end with this code when their work is saved: before an interruption, at the time
    limit, in the midst of a copy.
    """
    for name, ends in (("RequeueExit", "ends as failed"), ("RequeueExitHold", "is held")):
        words, is_hold = facts.words(name), name == "RequeueExitHold"
        if has_code(words, REQUEUE_EXIT) is not is_hold:
            continue
        text = f"a job that saved its work and exits {REQUEUE_EXIT} to go on later {ends}"
        kept = [word for word in words if not has_code([word], REQUEUE_EXIT)]
        listed = ",".join((*kept, *([] if is_hold else [str(REQUEUE_EXIT)])))
        fix = "Take it out." if is_hold else "Add the code; jobs that end so are requeued."
        yield Hit(facts.origin(name), text, fix, f"{name}={listed}" if listed else f"# {name}")


def _return_to_service(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    value = facts.number("ReturnToService")
    if value is not None and value != RETURN_ALWAYS:
        text = "a node that registers late or rebooted stays down until reconcile ends its instance"
        yield Hit(facts.origin("ReturnToService"), text, "Let it return.", "ReturnToService=2")


def _test_exec(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    if facts.parameter("LaunchParameters", "test_exec") is not None:
        text = "srun refuses a program that its own host lacks, although the node has it"
        fix = "Remove test_exec, or submit from hosts with the same programs."
        setting = facts.line_with("LaunchParameters", remove=UNFIT_LAUNCHES)
        yield Hit(facts.origin("LaunchParameters"), text, fix, setting)


def _licenses(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    items = [item for item in facts.licenses or () if item.total]
    if items:
        counts = ", ".join(f"{item.name} ({item.used} of {item.total})" for item in items[:5])
        text = f"licences are in use, {counts}: jobs on cloud nodes take from the same count"
        racks = ",".join(part.name for part in facts.site.partitions[:3])
        fix = "See that nodes reach the licence server, or keep such jobs on racks."
        words = (f"--licenses={items[0].name}", f"--partition={racks}")
        yield Hit(Origin("scontrol show licenses"), text, fix, shlex.join(("sbatch", *words)))


def _federation(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    if facts.federation:
        text = f"the cluster is in the federation {facts.federation}: jobs of its other clusters"
        text += " start on cloud nodes, whose submit hosts and uids nodes must know"
        fix = "Take the cluster out of it, or allow own accounts alone in cloud partitions."
        words = ("modify", "federation", facts.federation, "set")
        setting = shlex.join(("sacctmgr", *words, f"clusters-={facts.site.cluster_name}"))
        yield Hit(Origin("scontrol show federation"), text, fix, setting)


_E, _W = Severity.ERROR, Severity.WARNING
RULES: Final = (
    SiteRule("gres-types", _E, MAN + "#OPT_GresTypes", _gres_types),
    SiteRule("gres-autodetect", _E, GRES + "#OPT_AutoDetect", _autodetect),
    SiteRule("gpu-tres", _W, MAN + "#OPT_AccountingStorageTRES", _gpu_tres),
    SiteRule("select-type", _W, MAN + "#OPT_SelectType", _select_type),
    SiteRule("select-memory", _W, MAN + "#OPT_SelectTypeParameters", _select_memory),
    SiteRule("no-accounting", _W, MAN + "#OPT_AccountingStorageType", _no_accounting),
    SiteRule("no-enforcement", _W, MAN + "#OPT_AccountingStorageEnforce", _enforcement),
    SiteRule("part-limits", _W, MAN + "#OPT_EnforcePartLimits", _part_limits),
    SiteRule("job-requeue", _W, MAN + "#OPT_JobRequeue", _requeue),
    SiteRule("requeue-exit", _W, MAN + "#OPT_RequeueExit", _requeue_exit),
    SiteRule("return-to-service", _W, MAN + "#OPT_ReturnToService", _return_to_service),
    SiteRule("test-exec", _W, MAN + "#OPT_test_exec", _test_exec),
    SiteRule("licenses", _W, "https://slurm.schedmd.com/licenses.html", _licenses),
    SiteRule("federation", _W, "https://slurm.schedmd.com/federation.html", _federation),
)
