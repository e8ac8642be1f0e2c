"""Checks names: YAML words, and names that AWS, Slurm or the system has taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.config.raw import items, mapping
from toolkit.config.types import NAME, NAME_UNDERSCORE, USER_NAME, WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config.raw import Finding, KeyPath

# YAML 1.1 has more words for true and false than YAML 1.2 (https://yaml.org/type/bool.html).
# CloudFormation and Ansible read 1.1, and names are written to their files without quotes.
YAML_WORDS = {
    **dict.fromkeys(("yes", "on", "true", "y"), "true"),
    **dict.fromkeys(("no", "off", "false", "n"), "false"),
    "null": "nothing",
}

# A stack is `toolkit-CLUSTER`, a bucket CLUSTER-ACCOUNT-REGION (toolkit.deploy.names).
TAKEN_CLUSTERS = {
    "images": "toolkit-images is the stack of image builds",
    "toolkit-images": "toolkit-images-ACCOUNT-REGION is the bucket of image builds",
}
BACKUPS_SUFFIX = "-backups"
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
BUCKET_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")

# Users and groups of Debian's base-passwd, of the packages on our instances, and of AWS's images.
# A user has a group of the same name. The playbook refuses what is missing here (check_ids in
# slurmplugins.node.users).
SYSTEM_NAMES = frozenset(
    {
        *("root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp"),
        *("proxy", "www-data", "backup", "list", "irc", "nobody", "messagebus", "sshd"),
        *("adm", "audio", "cdrom", "dialout", "dip", "disk", "fax", "floppy", "kmem", "nogroup"),
        *("operator", "plugdev", "sasl", "shadow", "src", "staff", "sudo", "tape", "tty", "users"),
        *("utmp", "video", "voice", "wheel", "clock", "crontab", "input", "kvm", "netdev"),
        *("render", "sgx", "ssl-cert"),
        *("mysql", "slurm", "munge", "mlflow", "optuna"),
        *("admin", "debian", "ubuntu", "ec2-user", "ssm-user", "ec2-instance-connect", "lxd"),
        *("dhcpcd", "fwupd-refresh", "landscape", "polkitd", "pollinate", "rdma", "syslog"),
        *("tcpdump", "tss", "usbmux", "uuidd", "docker", "dnsmasq", "nvidia-persistenced"),
    }
)
# How packages name the users that they make.
SYSTEM_PREFIXES = ("_", "systemd-")


def name_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield every name that means something else, or is taken."""
    for path, name, pattern in _names(raw):
        if isinstance(name, str) and name in YAML_WORDS:
            meaning = YAML_WORDS[name]
            yield path, f"YAML readers may take {name} for {meaning}: choose another name"
        elif not isinstance(name, str):
            kind = "nothing" if name is None else f"the value {str(name).lower()}"
            yield path, f"YAML reads {kind} here: choose another name, of {WORDS[pattern]}"
    yield from _taken(raw)


def _names(raw: Mapping[str, Any]) -> Iterator[tuple[KeyPath, object, str]]:
    """Yield each place that gives something its name."""
    if "cluster" in raw:
        yield ("cluster",), raw["cluster"], NAME
    for section, pattern in (("pools", NAME), ("partitions", NAME_UNDERSCORE)):
        for name in mapping(raw, section):
            yield (section, name), name, pattern
    for section, pattern in (("accounts", NAME_UNDERSCORE), ("users", USER_NAME)):
        for index, item in enumerate(items(raw, section)):
            if isinstance(item, dict) and "name" in item:
                yield (section, index, "name"), item["name"], pattern


def _taken(raw: Mapping[str, Any]) -> Iterator[Finding]:
    cluster = raw.get("cluster")
    if isinstance(cluster, str) and cluster in TAKEN_CLUSTERS:
        yield ("cluster",), f"{TAKEN_CLUSTERS[cluster]}: choose another name"
    if isinstance(cluster, str) and cluster.endswith(BACKUPS_SUFFIX):
        message = f"toolkit-CLUSTER{BACKUPS_SUFFIX} is the stack of a cluster's backups"
        yield ("cluster",), f"{message}: choose a name that does not end so"
    if isinstance(cluster, str) and cluster.startswith(BUCKET_PREFIXES):
        prefixes = ", ".join(BUCKET_PREFIXES)
        yield ("cluster",), f"S3 keeps names of buckets with {prefixes} to itself: choose another"
    for pool, owner in (("head", "the head node"), ("login", "login nodes")):
        if pool in mapping(raw, "pools"):
            message = f"reports call the pool of {owner} {pool}: choose another name"
            yield ("pools", pool), message
    if "default" in mapping(raw, "partitions"):
        # Compared without case: src/common/read_config.c, _parse_partitionname.
        message = "Slurm reads PartitionName=default as defaults of partitions: choose another name"
        yield ("partitions", "default"), message
    for index, user in enumerate(items(raw, "users")):
        name = user.get("name") if isinstance(user, dict) else None
        if isinstance(name, str) and (name in SYSTEM_NAMES or name.startswith(SYSTEM_PREFIXES)):
            message = f"{name} is, or may become, a user or group of the system: choose another"
            yield ("users", index, "name"), message
