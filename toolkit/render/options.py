"""The options of each Slurm version, in one table for the renderer and the linter.

Keys are option names in slurm.conf's spelling, or `Option=parameter` for one word of a
list. As far as we know, an option that is not in the table is in every supported
version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.render.versions import NEWEST, OLDEST, SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Option:
    """The versions of an option: from `since` on, before `removed`."""

    name: str
    since: SlurmVersion = OLDEST
    removed: SlurmVersion | None = None
    advice: str = ""  # advice for a person

    def supported_by(self, version: SlurmVersion) -> bool:
        """Return whether this version knows the option and uses it."""
        return self.since <= version and (self.removed is None or version < self.removed)


def _version(text: str) -> SlurmVersion:
    return SlurmVersion.parse(text)


# No supported version has these options: it refuses them, warns, or ignores them silently.
_NEVER: Final = OLDEST
TABLE: Final = (
    # Nodes that come and go
    Option(
        "SlurmctldParameters=cloud_reg_addrs",
        removed=_NEVER,
        advice="it is the default since 23.11, and an error in the log if set",
    ),
    Option(
        "SlurmctldParameters=cloud_dns",
        removed=_NEVER,
        advice="it resolves every node when slurmctld starts; slurm-resume writes NodeAddr",
    ),
    Option("SlurmctldParameters=max_powered_nodes", since=_version("24.05")),
    Option("SlurmctldParameters=power_save_interval"),
    Option("PrivateData=cloud", removed=_NEVER, advice="it has no effect since 23.02"),
    Option("PowerAction", since=_version("26.05")),
    # Requeueing
    Option(
        "SchedulerParameters=requeue_on_resume_failure",
        since=_version("25.05"),
        advice="it requeues even --no-requeue batch jobs whose nodes never registered",
    ),
    Option(
        "SchedulerParameters=requeue_delay",
        since=_version("25.11"),
        advice="without it, a requeued job waits for AuthInfo=cred_expire",
    ),
    Option(
        "SlurmctldParameters=enable_expedited_requeue",
        since=_version("25.11"),
        advice="it holds jobs that exit non-zero, if no Epilog checks health",
    ),
    # Priorities
    Option("PriorityFlags=MAX_TRES"),
    Option("PriorityFlags=MAX_TRES_GRES", since=_version("25.05")),
    # The daemons
    Option("MetricsType", since=_version("25.11")),
    Option("MetricsAuthUsers", since=_version("26.05")),
    Option("MetricsParameters", since=_version("26.05")),
    Option("CommunicationParameters=disable_http", since=_version("25.11")),
    Option("HttpParserType", since=_version("25.11")),
    Option("UrlParserType", since=_version("25.11")),
    Option("SlurmctldHttpAuthParameters", since=_version("26.05")),
    Option("SlurmdHttpAuthParameters", since=_version("26.05")),
    Option("CliFilterParameters", since=_version("25.11")),
    Option("PrologTimeout", since=_version("25.05"), advice="use PrologEpilogTimeout"),
    Option("EpilogTimeout", since=_version("25.05"), advice="use PrologEpilogTimeout"),
    Option("HealthCheckTimeout", since=_version("26.05")),
    Option("LicenseParameters", since=_version("26.05")),
    Option("AccountingStorageUser", removed=_version("25.11"), advice="slurmdbd.conf has it"),
    Option("AccountingStorageLoc", removed=_version("25.11"), advice="slurmdbd.conf has it"),
    Option("GetEnvTimeout", removed=_version("25.05")),
    Option("SchedulerParameters=enable_job_state_cache", removed=_version("26.05")),
    Option("CryptoType", removed=_NEVER, advice="use CredType"),
    Option("FastSchedule", removed=_NEVER, advice="use SlurmdParameters=config_overrides"),
    Option("LogTimeFormat=stderr", removed=_version("25.05")),
    Option("SelectType=select/cons_res", removed=_NEVER, advice="use select/cons_tres"),
    Option("SelectType=select/linear"),
    Option("TopologyPlugin=topology/none", removed=_NEVER, advice="use topology/flat"),
    Option(
        "JobContainerType",
        removed=_version("25.11"),
        advice="use NamespaceType=namespace/tmpfs, which reads the same job_container.conf",
    ),
    Option("NamespaceType", since=_version("25.11"), advice="use JobContainerType"),
    Option("AcctGatherEnergyType=acct_gather_energy/cray_aries", removed=_version("24.05")),
    Option("ProctrackType=proctrack/cray_aries", removed=_version("24.05")),
    Option("TaskPlugin=task/cray_aries", removed=_version("24.05")),
    Option("AuthAltParameters=jwks"),
    Option("AuthInfo=disable_sack"),
    Option(
        "AuthInfo=jwks",
        since=_version("24.05"),
        advice="it allows several keys, for their rotation",
    ),
    Option("NodeName=SuspendTime", since=_version("26.05")),
    Option("NodeName=Topology", since=_version("25.05")),
)
_BY_NAME: Final = {option.name.lower(): option for option in TABLE}


def find(name: str, word: str = "") -> Option | None:
    """Return the table's row for an option or a list's word.

    Case doesn't matter. None if the table has no row.
    """
    key = f"{name}={word.partition('=')[0]}" if word else name
    return _BY_NAME.get(key.lower())


def unsupported_reason(name: str, word: str, version: SlurmVersion) -> str | None:
    """Return the reason why this version can't use `word`, or None.

    An empty `word` means the whole option.
    """
    option = find(name, word)
    if option is None or option.supported_by(version):
        return None
    reason = f": {option.advice}" if option.advice else ""
    if version < option.since:
        return f"{option.name} needs Slurm {option.since}, this is {version}{reason}"
    return f"Slurm {version} no longer has {option.name}{reason}"


def supported(name: str, words: Iterable[str], version: SlurmVersion) -> tuple[str, ...]:
    """Return the words of a list option that this version knows."""
    return tuple(word for word in words if unsupported_reason(name, word, version) is None)


def check_range(version: SlurmVersion) -> None:
    """Raise ValueError for a version that the table does not cover."""
    if not OLDEST <= version <= NEWEST:
        raise ValueError(f"Slurm {version} is not supported: {OLDEST} to {NEWEST} are")
