"""Questions to a site's slurmctld, and to the host that it runs on."""

from __future__ import annotations

import base64
import binascii
import posixpath
import time
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.model.site_key import MUNGE, SLURM_JWKS, SLURM_KEY, SiteKey
from toolkit.deploy.site_node import SiteNode
from toolkit.errors import HeadCommandFailed
from toolkit.join.controller_files import LIB, SlurmUser
from toolkit.join.errors import JoinError, ReconfigureRefused, SiteUnreadable
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.config import ClusterConfig
    from toolkit.join.site import SiteFacts, SiteRunner

MUNGE_KEY: Final = "/etc/munge/munge.key"
TAKEOVER_SECONDS: Final = 60.0
"""From 23.11 on, slurmctld starts itself anew, and goes on as before where that fails
(scontrol(1), reconfigure)."""
PAUSE: Final = 0.5
_CHECK: Final = (
    "import sys; assert sys.version_info >= (3, 11), sys.version.split()[0];"
    " import botocore; print(botocore.__version__)"
)
_CLOUD: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from slurmplugins.cloud.client import client;"
    " client('ec2', sys.argv[2], sys.argv[3] or None).describe_instances(MaxResults=5)"
)


def check_python(runner: SiteRunner, config: ClusterConfig) -> None:
    """Raise JoinError unless the controller's Python runs our programs."""
    python = config.joined_site.python
    try:
        runner.run([python, "-I", "-c", _CHECK])
    except HeadCommandFailed as error:
        last = error.stderr.strip().splitlines()[-1:] or [error.message]
        raise JoinError(
            f"{python} on the controller can't run our programs: {last[0]}",
            next_step="install Python 3.11 or later with boto3, and name it as site.python",
        ) from error


def check_credentials(runner: SiteRunner, config: ClusterConfig, user: SlurmUser) -> None:
    """Raise JoinError unless SlurmUser can ask EC2 on the controller."""
    site, library = config.joined_site, posixpath.dirname(LIB)
    argv = [site.python, "-I", "-c", _CLOUD, library, config.aws.region]
    try:
        runner.run(
            ["/usr/sbin/runuser", "-u", user.name, "--", *argv, config.aws.endpoint_url or ""]
        )
    except HeadCommandFailed as error:
        last = error.stderr.strip().splitlines()[-1:] or [error.message]
        raise JoinError(
            f"{user.name} on the controller can't reach EC2: {last[0]}",
            next_step=f"mend site.aws in cluster.yaml; {paths.AWS_CONFIG} is made of it",
        ) from error


def slurm_user(runner: SiteRunner, site: SiteFacts) -> SlurmUser:
    """Return SlurmUser with its ids."""
    numbers = [
        runner.run(["/usr/bin/id", option, site.slurm_user]).strip() for option in ("-u", "-g")
    ]
    if not all(number.isdecimal() for number in numbers):
        raise SiteUnreadable(f"id {site.slurm_user} answered {numbers}")
    return SlurmUser(site.slurm_user, int(numbers[0]), int(numbers[1]))


def site_node(runner: SiteRunner, site: SiteFacts, user: SlurmUser) -> SiteNode:
    """Return what cloud nodes must know. The controller resolves its own names."""
    controllers = tuple(
        (name, address or _address(runner, name), site.port) for name, address in site.hosts
    )
    if not controllers:
        raise SiteUnreadable("scontrol show config has no SlurmctldHost")
    return SiteNode(controllers, (user.name, user.uid, user.gid))


def _address(runner: SiteRunner, name: str) -> str:
    rows = runner.run(["/usr/bin/getent", "ahostsv4", name]).splitlines()
    addresses = [row.split()[0] for row in rows if row.split()]
    if not addresses or addresses[0].startswith("127."):
        raise JoinError(
            f"{name} of SlurmctldHost has no address that cloud nodes can reach",
            next_step=f"write SlurmctldHost={name}(ADDRESS) in slurm.conf",
        )
    return addresses[0]


def read_key(runner: SiteRunner, site: SiteFacts) -> SiteKey:
    """Read the key that the site's daemons share.

    It is in no message.
    """
    names = [MUNGE_KEY]
    if site.value("AuthType", "auth/munge").lower() == "auth/slurm":
        names = [posixpath.join(site.folder, name) for name in (SLURM_JWKS, SLURM_KEY)]
    for path in names:
        try:
            runner.run(["/usr/bin/test", "-e", path])
        except HeadCommandFailed:
            continue
        text = runner.run(["/usr/bin/base64", "-w0", path])
        try:
            content = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise SiteUnreadable(f"base64 {path} answered something else") from error
        return SiteKey(MUNGE if path == MUNGE_KEY else posixpath.basename(path), content)
    raise JoinError(
        f"the controller has no key at {' or '.join(names)}",
        next_step="say in slurm.conf by AuthType which key the site has",
    )


def reconfigure(
    runner: SiteRunner,
    config: ClusterConfig,
    *,
    joined: bool,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Have slurmctld read its files, and wait for the outcome.

    Raises ReconfigureRefused if it goes on without the change.
    """
    scontrol = f"{config.joined_site.slurm_bin}/scontrol"
    problem = ""
    try:
        runner.run([scontrol, "reconfigure"], timeout=TAKEOVER_SECONDS)
    except HeadCommandFailed as error:
        problem = (error.stderr or error.stdout).strip()
    wait = Wait(TAKEOVER_SECONDS, sleep, clock, pause=PAUSE)
    wanted = set(config.partitions)
    while True:
        partitions = _partitions(runner, scontrol)
        if partitions is not None and (wanted <= partitions if joined else not wanted & partitions):
            return
        if wait.is_over or (problem and partitions is not None):
            raise ReconfigureRefused(
                f"slurmctld goes on without the change: {problem or 'its log says why'}",
                next_step="look at slurmctld's log, mend the cause, then run this again",
            )
        wait.pause()


def _partitions(runner: SiteRunner, scontrol: str) -> set[str] | None:
    """Return the names of all partitions; None while slurmctld does not answer."""
    try:
        text = runner.run([scontrol, "show", "partition", "--oneliner"])
    except HeadCommandFailed:
        return None
    words = (word for line in text.splitlines() for word in line.split()[:1])
    return {word.removeprefix("PartitionName=") for word in words}
