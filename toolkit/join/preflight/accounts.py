"""Rules about accounts and paths: uids on both sides, homes, StateSaveLocation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from toolkit.join.preflight.findings import Hit, Origin, SiteRule
from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.rule import MAN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.preflight.facts import Account, PreflightFacts

PASSWD: Final = Origin("getent passwd")
QUICKSTART: Final = "https://slurm.schedmd.com/quickstart_admin.html"
NSS: Final = "https://slurm.schedmd.com/nss_slurm.html"
_UID: Final = re.compile(r"\((\d{1,10})\)$")
SHARED: Final = frozenset(
    {
        "nfs", "nfsd", "lustre", "gpfs", "ceph", "fuse", "fuseblk", "fusectl", "cifs", "smb2",
        "ocfs2", "gfs/gfs2", "gfs", "pvfs2", "panfs", "afs", "beegfs", "wekafs",
    }
)  # fmt: skip
"""Names that coreutils' `stat -f` gives to filesystems of several hosts (src/stat.c, fs_type)."""
UNFIT_LAUNCHES: Final = ("disable_send_gids", "test_exec")
"""LaunchParameters that suppose the same accounts and programs on all hosts."""
FOLDER_DEPTH: Final = 2


def _slurm_user(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    """Compare SlurmUser's uid: slurmd obeys root and its own SlurmUser.

    Slurm 25.11.7 with another uid: "Security violation: REQUEST_BATCH_JOB_LAUNCH", and slurmctld
    "Killing non-startable batch job: Invalid user id".
    """
    match = _UID.search(facts.value("SlurmUser"))
    if match is None or cloud.slurm_uid is None or int(match[1]) in {0, cloud.slurm_uid}:
        return
    uid = int(match[1])
    text = f"SlurmUser has uid {uid}, and {cloud.slurm_uid} in the node image: slurmd refuses"
    text += " slurmctld's messages, and slurmctld ends the job"
    fix = "Give the image's user the site's uid, in the image's set-up."
    setting = f"groupmod --gid {uid} slurm && usermod --uid {uid} --gid {uid} slurm"
    yield Hit(facts.origin("SlurmUser"), text, fix, setting)


def _low_slurm_uid(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    match = _UID.search(facts.value("SlurmUser"))
    if cloud.slurm_uid is None and match is not None and 0 < int(match[1]) < cloud.first_user_uid:
        text = f"nodes give SlurmUser the site's uid {match[1]}: if a service of the image has it,"
        text += " no node boots"
        fix = "Ask the image; give its service another uid if there is one."
        yield Hit(facts.origin("SlurmUser"), text, fix, f"getent passwd {match[1]}")


def _system_uids(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    taken = [
        user
        for user in facts.job_users or ()
        if 0 < user.uid < cloud.first_user_uid or user.uid == cloud.slurm_uid
    ]
    if taken:
        text = f"{_people(taken)} run jobs with uids that the image's own services have"
        fix = f"Give them uids from {cloud.first_user_uid} on, or keep them on racks."
        setting = f"PartitionName={','.join(cloud.partitions[:1])} DenyAccounts=ACCOUNT"
        yield Hit(PASSWD, text, fix, setting)


def _system_gids(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    groups = [user for user in facts.job_users or () if 0 < user.gid < cloud.first_user_uid]
    others = [user for user in groups if user.uid >= cloud.first_user_uid]
    if others:
        gids = sorted({user.gid for user in others})
        text = f"the first group of {_people(others)} is a group of the system in the image"
        text += f" ({', '.join(map(str, gids[:5]))}): its files are open to that service"
        fix = f"Give people groups from {cloud.first_user_uid} on."
        setting = f"groupmod --gid GID_FROM_{cloud.first_user_uid} GROUP"
        yield Hit(PASSWD, text, fix, setting)


def _other_uids(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    if cloud.users is None:
        return
    by_uid = {account.uid: account.name for account in facts.accounts.values()}
    by_uid |= {user.uid: user.name for user in facts.job_users or () if user.name}
    accounts = {**facts.accounts, **{user.name: user for user in facts.job_users or ()}}
    for name, uid in cloud.users.items():
        account = accounts.get(name)
        if account is not None and account.uid != uid:
            text = f"{name} is {account.uid} at the site and {uid} in cluster.yaml: a job can't"
            text += " read its own files"
            yield Hit(PASSWD, text, "Use the site's uid.", f"users: {name}: uid: {account.uid}")
        elif account is None and by_uid.get(uid):
            text = f"uid {uid} is {by_uid[uid]}'s at the site and {name}'s in cluster.yaml"
            yield Hit(PASSWD, text, "Give the other user a uid that the site has free.")


def _missing_users(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    """Find users without an account on nodes.

    Their jobs run by the uid that slurmctld sends; `id` and ssh find no name (Slurm 25.11.7).
    """
    uses_nss = facts.parameter("LaunchParameters", "enable_nss_slurm") is not None
    if cloud.users is None or uses_nss:
        return
    uids = set(cloud.users.values())
    missing = [user for user in facts.job_users or () if user.uid not in uids and user.uid]
    if missing:
        text = f"{_people(missing)} run jobs and are not in cluster.yaml: their jobs run on nodes"
        text += " without a name, which ssh and some programs refuse"
        fix = "Add them, or let slurmctld send their names along with each job."
        add = ("enable_nss_slurm",)
        setting = facts.line_with("LaunchParameters", add=add, remove=UNFIT_LAUNCHES)
        yield Hit(PASSWD, text, fix, setting)


def _nameless(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    nameless = [user for user in facts.job_users or () if not user.name]
    if nameless:
        uids = ", ".join(str(user.uid) for user in nameless[:5])
        text = f"jobs of the uids {uids} have no account on the controller any more"
        yield Hit(PASSWD, text, "Cancel them, or bring the accounts back.", "scancel --user=UID")


def _sent_groups(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    """Find accounts that neither slurmctld sends nor nodes have.

    On Slurm 25.11.7 such a job was held: "launch failed requeued held".
    """
    unsent = facts.parameter("LaunchParameters", "disable_send_gids") is not None
    if unsent and cloud.users is not None:
        text = "slurmctld sends no accounts along: it holds the job of a user whom a node does not"
        text += " know"
        setting = facts.line_with("LaunchParameters", remove=UNFIT_LAUNCHES)
        yield Hit(facts.origin("LaunchParameters"), text, "Remove disable_send_gids.", setting)


def _homes(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    away = [user for user in facts.job_users or () if user.home and not cloud.has_path(user.home)]
    if away:
        folders = sorted({"/".join(user.home.split("/")[:FOLDER_DEPTH]) for user in away})
        text = f"the homes of {_people(away)} are in {', '.join(folders[:5])}, which is not in the"
        text += " cloud: a job finds no file of theirs, and its output stays on the node"
        fix = "Submit with a folder that nodes have, and bring data by jobs of its own."
        yield Hit(PASSWD, text, fix, "sbatch --chdir=/tmp --output=/dev/null")


def _state(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    several = len(facts.site.controllers) > 1
    kind = facts.state_filesystem
    if several and kind and kind.split(".")[0] not in SHARED:
        path = facts.value("StateSaveLocation")
        text = f"the site has {len(facts.site.controllers)} controllers, and {path} is on {kind}:"
        text += " the backup knows nothing of running jobs, nor of instances"
        fix = "Put it on a filesystem that all controllers mount."
        yield Hit(facts.origin("StateSaveLocation"), text, fix, "StateSaveLocation=/SHARED/PATH")


def _people(users: Iterable[Account]) -> str:
    listed = [f"{user.name or '?'} ({user.uid})" for user in users]
    rest = f" and {len(listed) - 3} more" if len(listed) > 3 else ""  # noqa: PLR2004
    return ", ".join(listed[:3]) + rest


_E, _W = Severity.ERROR, Severity.WARNING
RULES: Final = (
    SiteRule("slurm-uid", _E, QUICKSTART, _slurm_user),
    SiteRule("slurm-uid-low", _W, QUICKSTART, _low_slurm_uid),
    SiteRule("uid-of-system", _W, QUICKSTART, _system_uids),
    SiteRule("uid-differs", _E, QUICKSTART, _other_uids),
    SiteRule("state-not-shared", _E, MAN + "#OPT_StateSaveLocation", _state),
    SiteRule("user-missing", _W, NSS, _missing_users),
    SiteRule("user-nameless", _W, QUICKSTART, _nameless),
    SiteRule("gid-of-system", _W, QUICKSTART, _system_gids),
    SiteRule("groups-not-sent", _E, MAN + "#OPT_disable_send_gids", _sent_groups),
    SiteRule("home-missing", _W, QUICKSTART, _homes),
)
