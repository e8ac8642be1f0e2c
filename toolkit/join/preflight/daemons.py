"""Rules about what slurmd on a node needs: keys, plugins, programs, cgroups."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Final

from toolkit.join.preflight.findings import Hit, Origin, SiteRule
from toolkit.join.preflight.power import PARAMETERS, parameters_line
from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.parser import parse
from toolkit.lint.slurm_conf.rule import MAN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.preflight.facts import PreflightFacts

CONFIGLESS: Final = "https://slurm.schedmd.com/configless_slurm.html"
CGROUP: Final = "https://slurm.schedmd.com/cgroup.conf.html"
PLUGIN_SETTINGS: Final = (
    "CredType", "HashPlugin", "ProctrackType", "TaskPlugin", "JobAcctGatherType",
    "AcctGatherEnergyType", "AcctGatherFilesystemType", "AcctGatherInterconnectType",
    "AcctGatherProfileType", "JobContainerType", "NamespaceType", "NodeFeaturesPlugins",
    "PrEpPlugins", "SwitchType", "TopologyPlugin", "MpiDefault",
)  # fmt: skip
"""The settings by which slurmd loads a plugin at its start, or with a job."""
PROGRAMS: Final = ("Prolog", "Epilog", "TaskProlog", "TaskEpilog", "HealthCheckProgram")
"""Programs that slurmd runs. A node is drained, or its job fails, if one is missing."""
_INCLUDE: Final = re.compile(r"^\s*include\s+([^\s#]+)", re.IGNORECASE | re.MULTILINE)
_REQUIRED: Final = re.compile(r"^\s*required\s+(\S+)", re.MULTILINE)


def _auth_type(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    kind = facts.value("AuthType") or "auth/munge"
    if kind not in cloud.auth_types:
        text = f"nodes can't prove who they are by {kind}"
        fix = f"Use one of {', '.join(sorted(cloud.auth_types))} on the whole cluster."
        yield Hit(facts.origin("AuthType"), text, fix, "AuthType=auth/munge")


def _tls(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    kind = facts.value("TLSType")
    if kind not in {"", "tls/none"}:
        text = f"slurmctld talks {kind}, and nodes have no certificates for it"
        fix = "Turn it off, or wait for nodes that have certificates; the tunnel encrypts."
        yield Hit(facts.origin("TLSType"), text, fix, "TLSType=tls/none")


def _plugins(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    for name in PLUGIN_SETTINGS:
        for word in facts.words(name):
            kind = word if "/" in word else f"mpi/{word}"
            if name != "MpiDefault" and "/" not in word:
                continue  # `(null type)`, and what else is no plugin
            if not kind.endswith("/none") and kind not in cloud.plugins:
                text = f"the node image has no plugin {kind}: slurmd does not start, or jobs fail"
                fix = "Add the plugin to the node image, of the same Slurm, or leave it out."
                yield Hit(facts.origin(name), text, fix, f"{name}=…  # without {kind}")


def _plugin_dir(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    setting = facts.site.settings.get("plugindir")
    if setting is not None and not all(map(cloud.has_path, setting.value.split(":"))):
        text = f"slurmd looks for its plugins in {setting.value}, which cloud nodes do not have"
        fix = "Remove it where it is the site's own build's folder: each slurmd knows its folder."
        yield Hit(facts.origin("PluginDir"), text, fix, f"# {setting.name}={setting.value}")


def _spank(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    file = facts.files.get("plugstack.conf")
    for match in _REQUIRED.finditer("" if file is None else file.text):
        if file is not None and not cloud.has_path(match[1]):
            line = file.text.count("\n", 0, match.start(1)) + 1
            text = f"every job needs {match[1]}, which cloud nodes do not have: jobs fail"
            fix = "Make it optional, or put it into the node image, built for its Slurm."
            setting = f"optional {match[1]}"
            yield Hit(Origin(file.path, line), text, fix, setting)


def _programs(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    for name in PROGRAMS:
        values = [
            value
            for key, value in facts.site.running.items()
            if key == name.lower() or key.startswith(f"{name.lower()}[")
        ] or [facts.value(name)]
        for value in values:
            path = value.split(" ")[0]
            if path.startswith("/") and not cloud.has_path(path):
                text = (
                    f"slurmd runs {path}, which cloud nodes do not have: nodes drain, or jobs fail"
                )
                fix = "Put it beside slurm.conf and name it without a folder: nodes then get it."
                if name == "HealthCheckProgram":
                    fix = "Put it into the node image: slurmctld does not send it."
                setting = f"{name}={posixpath.basename(path)}"
                yield Hit(facts.origin(name), text, fix, setting)


def _configless(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    if facts.parameter(PARAMETERS, "enable_configless") is None:
        text = "new nodes get no slurm.conf: slurmd fetches it from slurmctld"
        fix = "Add enable_configless, and restart slurmctld; racks go on with their own files."
        yield Hit(facts.origin(PARAMETERS), text, fix, parameters_line(facts))


def _includes(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    """Find included files that slurmctld does not send to nodes.

    It sends those alone whose name has no slash: slurm.conf(5), enable_configless.
    """
    for file in facts.site.files:
        for match in _INCLUDE.finditer(file.text):
            if "/" in match[1]:
                line = file.text.count("\n", 0, match.start(1)) + 1
                text = f"slurmctld does not send {match[1]} along with slurm.conf: slurmd on a node"
                text += " does not start"
                fix = "Put the file beside slurm.conf, and name it without its folder."
                setting = f"Include {posixpath.basename(match[1])}"
                yield Hit(Origin(file.path, line), text, fix, setting)


def _proctrack(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    kind = facts.value("ProctrackType")
    if kind and kind != "proctrack/cgroup":
        text = f"with {kind} a job's process may outlive it, and use the next job's GPUs"
        fix = "Use cgroups, where the racks' system has them."
        yield Hit(facts.origin("ProctrackType"), text, fix, "ProctrackType=proctrack/cgroup")


def _task_plugin(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    plugins = facts.words("TaskPlugin")
    if "task/cgroup" not in plugins and "cgroup" not in plugins:
        text = "without task/cgroup a job sees all CPUs, memory and GPUs of its node"
        others = [word for word in plugins if "(" not in word and not word.endswith("none")]
        setting = f"TaskPlugin={','.join((*others, 'task/cgroup'))}"
        fix = "Add task/cgroup; it takes effect with new jobs."
        yield Hit(facts.origin("TaskPlugin"), text, fix, setting)


def _cgroup_plugin(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    file = facts.files.get("cgroup.conf")
    setting = None if file is None else parse(file.text).get("CgroupPlugin")
    if file is None or setting is None:
        return
    used = {facts.value("ProctrackType"), *facts.words("TaskPlugin")}
    needs_cgroups = bool(used & {"proctrack/cgroup", "task/cgroup"})
    problem = {
        "cgroup/v1": "the node image has cgroup v2 alone",
        "disabled": "ProctrackType or TaskPlugin need cgroups" if needs_cgroups else "",
    }.get(setting.value.lower(), "")
    if problem:
        text = f"CgroupPlugin={setting.value} comes to nodes by configless, and slurmd does not"
        text += f" start: {problem}"
        fix = "Let each slurmd find what its system has."
        yield Hit(Origin(file.path, setting.line), text, fix, "CgroupPlugin=autodetect")


_E, _W = Severity.ERROR, Severity.WARNING
RULES: Final = (
    SiteRule("auth-type", _E, MAN + "#OPT_AuthType", _auth_type),
    SiteRule("tls", _E, MAN + "#OPT_TLSType", _tls),
    SiteRule("plugin-missing", _E, MAN, _plugins),
    SiteRule("plugin-dir", _E, MAN + "#OPT_PluginDir", _plugin_dir),
    SiteRule("spank-plugin", _E, "https://slurm.schedmd.com/spank.html", _spank),
    SiteRule("program-missing", _E, "https://slurm.schedmd.com/prolog_epilog.html", _programs),
    SiteRule("configless", _E, CONFIGLESS, _configless),
    SiteRule("include-not-sent", _E, CONFIGLESS, _includes),
    SiteRule("cgroup-plugin", _E, CGROUP + "#OPT_CgroupPlugin", _cgroup_plugin),
    SiteRule("proctrack", _W, MAN + "#OPT_ProctrackType", _proctrack),
    SiteRule("task-plugin", _W, MAN + "#OPT_TaskPlugin", _task_plugin),
)
