"""Rules for users who share nodes: whose files and jobs they see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.rule import MAN, ConfRule, Hit, at_setting
from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.lint.slurm_conf.parser import SlurmConf

NAMESPACES: Final = "https://slurm.schedmd.com/namespace.html"
RENAMED: Final = SlurmVersion(25, 11)
"""JobContainerType=job_container/tmpfs is NamespaceType=namespace/tmpfs from here on."""
_CONTAINING_FLAGS: Final = frozenset({"contain", "x11", "runinjob"})
"""X11 and RunInJob bring Contain along (prolog_str2flags in read_config.c)."""


def _plugin(conf: SlurmConf) -> str:
    """Return the plugin that makes a job's mounts, or an empty string."""
    for name in ("NamespaceType", "JobContainerType"):
        setting = conf.get(name)
        if setting is not None and "none" not in setting.value.lower():
            return setting.name
    return ""


def _shared_tmp(conf: SlurmConf, version: SlurmVersion) -> Iterator[Hit]:
    if not _plugin(conf):
        old, new = ("JobContainerType", "job_container/tmpfs"), ("NamespaceType", "namespace/tmpfs")
        name, value = new if version >= RENAMED else old
        text = "the jobs of a node share /tmp and /dev/shm: files stay, and others may read them"
        yield at_setting(conf, name, text, f"{name}={value}, with a job_container.conf")


def _contain(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    flags = {word.lower() for word in conf.words("PrologFlags")}
    if (plugin := _plugin(conf)) and not flags & _CONTAINING_FLAGS:
        text = f"slurmctld does not start: {plugin} needs PrologFlags=Contain"
        yield at_setting(conf, "PrologFlags", text, "add Contain to PrologFlags")


def _private_queue(conf: SlurmConf, _version: SlurmVersion) -> Iterator[Hit]:
    if "jobs" in {word.lower() for word in conf.words("PrivateData")}:
        text = "users see their own jobs alone, and not what is before them in the queue"
        yield at_setting(conf, "PrivateData", text, "remove jobs from PrivateData")


_E, _W = Severity.ERROR, Severity.WARNING
RULES: Final = (
    ConfRule("shared-tmp", _W, NAMESPACES, _shared_tmp),
    ConfRule("contain-missing", _E, MAN + "#OPT_Contain", _contain),
    ConfRule("private-queue", _W, MAN + "#OPT_PrivateData", _private_queue),
)  # fmt: skip
