"""The files of ours on a site's controller: programs, settings, units, our part of slurm.conf."""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, StrictUndefined

from slurmplugins.config import paths
from toolkit import assets
from toolkit.deploy.bundle import NOT_SHIPPED
from toolkit.join.errors import SiteUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from toolkit.config import ClusterConfig
    from toolkit.join.site import SiteFacts, SiteRunner

LIB: Final = "/opt/slurm-toolkit/lib/slurmplugins"
BIN: Final = str(paths.BIN)
PROGRAMS: Final = (
    "slurm-resume", "slurm-suspend", "slurm-resume-fail", "slurm-reconcile", "slurm-govern",
    "slurm-records",
)  # fmt: skip
RECONCILE_UNITS: Final = ("slurm-reconcile.service", "slurm-reconcile.timer")
GOVERNOR_UNITS: Final = ("slurm-govern.service", "slurm-govern.timer")
RECORD_UNITS: Final = ("slurm-records.service", "slurm-records.timer")
UNITS: Final = (*RECONCILE_UNITS, *GOVERNOR_UNITS, *RECORD_UNITS)
TIMERS: Final = ("slurm-reconcile.timer", "slurm-govern.timer", "slurm-records.timer")
UNIT_FOLDER: Final = "/etc/systemd/system"
SHEBANG: Final = "#!/usr/bin/python3 -I"
ROOTS: Final = ("/opt/slurm-toolkit", str(paths.ETC), str(paths.STATE))
"""What `toolkit join remove` deletes, besides units and our part of slurm.conf. Logs stay."""


@dataclass(frozen=True, slots=True)
class SlurmUser:
    """The site's SlurmUser, which slurmctld and our programs run as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file to put on a controller."""

    path: str
    content: bytes
    mode: int | None = 0o644  # None: as it is, with its owner
    owner: str = "root:root"
    was: str | None = None  # SHA-256 of the content that it may replace; "": no file

    def to_json(self) -> dict[str, Any]:
        """Return the file as put_files reads it."""
        content = base64.b64encode(self.content).decode()
        entry = {"path": self.path, "base64": content, "mode": self.mode, "owner": self.owner}
        return entry if self.was is None else {**entry, "was": self.was}


def digest(text: str | None) -> str:
    """Return the SHA-256 of a file's text, "" for no file."""
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()


def governor_folder(config: ClusterConfig, site: SiteFacts) -> str:
    """Return the folder of what jobs that burst have cost.

    Several controllers share it: the backup must know what the primary has spent.
    """
    state = site.running.get("statesavelocation", "")
    if len(site.hosts) > 1 and state.startswith("/"):
        return posixpath.join(state, f"toolkit-{config.cluster}")
    return str(paths.STATE / "governor")


def programs(
    python: str, user: SlurmUser, governor: str, records_bucket: str
) -> tuple[OwnFile, ...]:
    """Return the runtime, its programs and units.

    `governor` is the folder of what was spent.
    """
    templates = {"governor": (GOVERNOR_UNITS, governor), "records": (RECORD_UNITS, paths.STATE)}
    root = assets.slurmplugins_directory()
    roles = assets.directory("ansible") / "roles/burst/files"
    library = [
        OwnFile(f"{LIB}/{path.relative_to(root).as_posix()}", path.read_bytes())
        for path in sorted(root.rglob("*.py"))
        if not NOT_SHIPPED & set(path.relative_to(root).parts)
    ]
    called = [
        OwnFile(f"{BIN}/{name}", _with_python((roles / "bin" / name).read_text(), python), 0o755)
        for name in PROGRAMS
    ]
    units = [
        OwnFile(f"{UNIT_FOLDER}/{name}", _as_user((roles / "head" / name).read_text(), user))
        for name in RECONCILE_UNITS
    ]
    units += [
        OwnFile(
            f"{UNIT_FOLDER}/{name}", _as_user(_unit(role, name, str(data), records_bucket), user)
        )
        for role, (names, data) in templates.items()
        for name in names
    ]
    return (*library, *called, *units)


def site_json(config: ClusterConfig, programs_of_site: dict[str, str]) -> str:
    """Return site.json, by which our programs know what is not theirs."""
    site = config.joined_site
    document = {
        "nodes": ",".join(config.nodes(pool) for pool in config.pools),
        "programs": programs_of_site,
        "slurm_bin": site.slurm_bin,
        "credentials_file": site.aws.credentials_file,
    }
    return json.dumps(document, indent=2) + "\n"


def aws_config(config: ClusterConfig, role: str) -> str:
    """Return the AWS configuration by which our programs get their role."""
    aws, lines = config.joined_site.aws, [f"region = {config.aws.region}"]
    if config.aws.endpoint_url:
        lines.append(f"endpoint_url = {config.aws.endpoint_url}")  # of STS too
    if aws.roles_anywhere is not None:
        anywhere = aws.roles_anywhere
        lines.append(
            f"credential_process = {anywhere.helper} credential-process"
            f" --certificate {anywhere.certificate} --private-key {anywhere.private_key}"
            f" --trust-anchor-arn {anywhere.trust_anchor} --profile-arn {anywhere.profile}"
            f" --role-arn {role}"
        )
        return "\n".join(["[default]", *lines]) + "\n"
    lines.append(f"role_arn = {role}")
    lines.append("role_session_name = slurm-controller")
    source = (
        f"source_profile = {aws.profile}"
        if aws.profile
        else "credential_source = Ec2InstanceMetadata"
    )
    own_profile = [f"[profile {aws.profile}]"] if aws.profile else []
    return "\n".join(["[default]", *lines, source, *own_profile]) + "\n"


def settings(
    user: SlurmUser, *, burst_json: str, site_text: str, aws_text: str
) -> tuple[OwnFile, ...]:
    """Return what our programs read. Only root and SlurmUser see burst.json."""
    return (
        OwnFile(str(paths.BURST), burst_json.encode(), 0o640, f"root:{user.gid}"),
        OwnFile(str(paths.SITE), site_text.encode()),
        OwnFile(str(paths.AWS_CONFIG), aws_text.encode()),
    )


def put(
    runner: SiteRunner,
    python: str,
    files: Iterable[OwnFile] = (),
    *,
    user: SlurmUser | None = None,
    governor: str | None = None,
    trees: Sequence[str] = (),
    absent: Sequence[str] = (),
) -> tuple[str, ...]:
    """Put files in place and delete others; return the paths that changed.

    May be repeated: what is right already stays untouched.
    """
    own_folders = [(str(paths.STATE), 0o750), (str(paths.LOGS), 0o755)]
    if governor is not None:
        own_folders.append((governor, 0o750))
    folders = [
        {"path": path, "mode": mode, "owner": f"{user.uid}:{user.gid}"}
        for path, mode in own_folders
        if user is not None
    ]
    request = {
        "files": [item.to_json() for item in files],
        "folders": folders,
        "trees": list(trees),
        "absent": list(absent),
    }
    source = (resources.files("toolkit.join") / "put_files.py").read_text("utf-8")
    answer = runner.run(
        [python, "-I", "-c", source], timeout=120, stdin=json.dumps(request).encode()
    )
    try:
        return tuple(map(str, json.loads(answer)))
    except ValueError as error:
        raise SiteUnreadable(f"the controller's {python} answered: {answer[:200]!r}") from error


def _unit(role: str, name: str, data: str, records_bucket: str) -> str:
    """Return a unit of a role, as Ansible renders it.

    `data` is the folder that must be there first.
    """
    path = assets.directory("ansible") / f"roles/{role}/templates/{name}.j2"
    environment = Environment(  # noqa: S701  # a unit of systemd, where & is no entity
        undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string(path.read_text()).render(
        ansible_managed="By toolkit join.",
        toolkit_root=ROOTS[0],
        toolkit_head_data=data,
        toolkit_backup_bucket=records_bucket,
    )


def _with_python(text: str, python: str) -> bytes:
    return text.replace(SHEBANG, f"#!{python} -I", 1).encode()


def _as_user(text: str, user: SlurmUser) -> bytes:
    own = text.replace("User=slurm\n", f"User={user.name}\n")
    return own.replace("Group=slurm\n", f"Group={user.gid}\n").encode()
