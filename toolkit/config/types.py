"""The types of values in cluster.yaml: names, requirements, settings.

All of them end in slurm.conf, a tag, a file name or a command line. Therefore each type
allows characters that are known to be harmless there, and nothing else.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

# The patterns; WORDS has the text that stands for each in a message.
NAME = r"^[a-z][a-z0-9-]{0,30}$"
NAME_UNDERSCORE = r"^[a-z][a-z0-9_-]{0,30}$"
USER_NAME = r"^[a-z_][a-z0-9_-]{0,31}$"
ZONE = r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$"
REGION = r"^[a-z]{2}(-[a-z]+)+-\d$"
LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
SITE_ACCOUNT = r"^[a-z0-9][a-z0-9._-]{0,62}$"
FAMILY = r"^[a-z][a-z0-9-]{0,20}$"
REQUIREMENT = r"^[A-Za-z0-9][^\n\r\x00#]{0,199}$"
SETTING = r"^[A-Za-z][A-Za-z0-9]{1,60}$"
GPU_KIND = r"^[a-z][a-z0-9_]{0,30}$"
ENDPOINT = r"^https?://[^\s/]+/?$"
FILE = r"^[/~][^\n]*$"
PROGRAM = r"^/[A-Za-z0-9._/-]+$"
FOLDER = r"^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$"
OWNER = r"^(\d{12}|amazon|self)$"
VPC_ID = r"^vpc-[0-9a-f]+$"
PRINCIPAL = r"^arn:aws:iam::\d{12}:(root|(user|role)/[A-Za-z0-9_+=,.@/-]{1,512})$"
TRUST_ANCHOR = r"^arn:aws:rolesanywhere:[a-z0-9-]{1,32}:\d{12}:trust-anchor/[0-9a-f-]{36}$"
ANYWHERE_PROFILE = r"^arn:aws:rolesanywhere:[a-z0-9-]{1,32}:\d{12}:profile/[0-9a-f-]{36}$"
SUBNET_ID = r"^subnet-[0-9a-f]+$"
BOUNDARY = r"^arn:aws:iam::(\d{12}|aws):policy/[A-Za-z0-9_+=,.@/-]{1,512}$"
IAM_PATH = r"^/([A-Za-z0-9_+=,.@-]{1,64}/){0,7}$"
ROLE_PREFIX = r"^[A-Za-z0-9_+=,.@-]{1,24}$"
SNAPSHOT_ID = r"^snap-[0-9a-f]{8,17}$"
EMAIL = r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,5}$"
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
LEDGER_ACCOUNT = r"^[A-Za-z0-9][A-Za-z0-9 ._/:-]{0,39}$"
TOPIC = r"^arn:aws:sns:[a-z0-9-]{1,32}:\d{12}:[A-Za-z0-9_-]{1,256}$"
BACKUP_ID = r"^backup-[0-9a-f]{8,17}$"
PERIOD = r"^[1-9]\d{0,3}[mhd]$"
WAIT = r"^[1-9]\d{0,3}[smhd]$"
DAYS = r"^[1-9]\d{0,3}d$"
TIME_OF_DAY = r"^([01]\d|2[0-3]):[0-5]\d$"
MAX_TIME = r"^(infinite|(\d+-)?\d{1,2}(:\d{2}){0,2}|\d+)$"
LIMIT_TIME = r"^(([0-9]{1,4}-)?[0-9]{1,2}(:[0-9]{2}){0,2}|[0-9]{1,7})$"
_IN_S3 = r"bucket|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]{1,200})?"
STORE = rf"^(shared|{_IN_S3})$"
CHECKPOINTS = rf"^({_IN_S3})$"
TRES = r"^(cpu|mem|node|gres/[a-z][a-z0-9_]{0,30}(:[a-z][a-z0-9_]{0,30})?)$"
SYSTEM = r"^[a-z][a-z0-9]*-[0-9.]{1,8}$"
PACKAGE_STORE = (
    r"^(s3|https)://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](:\d{1,5})?(/[A-Za-z0-9._-]{1,64}){0,8}$"
)
RESERVATION = r"^cr-[0-9a-f]{4,17}$"
POLICY = (
    r"^(as-listed|spot-only|spot-first|on-demand-only|cheapest-first"
    r"|on-demand-after [1-9]\d{0,3}[smhd])$"
)
WORDS = {
    NAME: "up to 31 of a-z, 0-9 and -, starting with a letter",
    TRES: "a TRES: cpu, mem, node, gres/gpu or gres/gpu:a10g",
    NAME_UNDERSCORE: "up to 31 of a-z, 0-9, _ and -, starting with a letter",
    USER_NAME: "up to 32 of a-z, 0-9, _ and -, starting with a letter or _",
    ZONE: "an availability zone such as us-east-1a",
    REGION: "a region such as us-east-1",
    FAMILY: "a family of instance types such as g5",
    LABEL: "up to 63 of A-Z, a-z, 0-9, ., _ and -",
    SITE_ACCOUNT: "up to 63 of a-z, 0-9, ., _ and -, as Slurm has an account in lower case",
    REQUIREMENT: "a Python requirement such as torch==2.13.0",
    SETTING: "a slurm.conf setting such as MaxArraySize",
    GPU_KIND: "up to 31 of a-z, 0-9 and _, such as a10g",
    ENDPOINT: "a URL such as http://127.0.0.1:4566",
    FILE: "an absolute path, or one starting with ~",
    PROGRAM: "the absolute path of a program",
    FOLDER: "the absolute path of a folder",
    OWNER: "a 12-digit account id in quotes, amazon or self",
    SUBNET_ID: "a subnet id such as subnet-0abc",
    VPC_ID: "a VPC's id such as vpc-0abc",
    PRINCIPAL: "the ARN of a user or role such as arn:aws:iam::123456789012:role/controller",
    TRUST_ANCHOR: "the ARN of a trust anchor of IAM Roles Anywhere",
    ANYWHERE_PROFILE: "the ARN of a profile of IAM Roles Anywhere",
    BOUNDARY: "the ARN of a policy such as arn:aws:iam::123456789012:policy/limits",
    IAM_PATH: "a path such as /clusters/, with a slash at both ends",
    ROLE_PREFIX: "up to 24 of A-Z, a-z, 0-9 and _+=,.@-",
    SNAPSHOT_ID: "the id of an EBS snapshot such as snap-0123456789abcdef0",
    BACKUP_ID: "the id of an FSx backup such as backup-0123456789abcdef0",
    PERIOD: "a period such as 6h, with m, h or d",
    WAIT: "a wait such as 30m, with s, m, h or d",
    DAYS: "days such as 30d",
    TIME_OF_DAY: "a time of day in UTC such as 03:00, in quotes",
    CHECKPOINTS: "bucket or s3://another-bucket/prefix",
    STORE: "shared, bucket or s3://another-bucket/prefix",
    SYSTEM: "a system such as debian-13 or ubuntu-24.04",
    PACKAGE_STORE: "s3://bucket/prefix or https://host/folder",
    RESERVATION: "the id of a capacity reservation or block such as cr-0abc",
    POLICY: (
        "as-listed, spot-only, spot-first, on-demand-only, cheapest-first or on-demand-after 10m"
    ),
    EMAIL: "an email address such as hpc@example.org",
    ONE_LINE: "one line of text",
    LEDGER_ACCOUNT: "up to 40 of A-Z, a-z, 0-9, blanks and ._/:-",
    TOPIC: "the ARN of an SNS topic such as arn:aws:sns:us-east-1:123456789012:hpc",
    LIMIT_TIME: "a Slurm time such as 1-00:00:00, 12:00:00, or minutes",
    MAX_TIME: "a Slurm time such as 1-00:00:00, 12:00:00, minutes, or infinite",
}

ClusterName = Annotated[str, Field(pattern=NAME)]
PoolName = Annotated[str, Field(pattern=NAME)]
PartitionName = Annotated[str, Field(pattern=NAME_UNDERSCORE)]
AccountName = Annotated[str, Field(pattern=NAME_UNDERSCORE)]
SiteAccountName = Annotated[str, Field(pattern=SITE_ACCOUNT)]
UserName = Annotated[str, Field(pattern=USER_NAME)]
ZoneName = Annotated[str, Field(pattern=ZONE)]
Label = Annotated[str, Field(pattern=LABEL)]
Requirement = Annotated[str, Field(pattern=REQUIREMENT)]
SettingName = Annotated[str, Field(pattern=SETTING)]
# Slurm's `nodes` and `partitions` would hide from users what they may submit to.
PrivateData = Literal["accounts", "events", "jobs", "reservations", "usage", "users"]

# slurm.conf has no quoting: a newline starts another setting, a # ends this one, a trailing
# backslash joins the next line to it.
FORBIDDEN_IN_SETTING = ("#", "\\")

# FSx for Lustre (PERSISTENT_2, SSD) is sold in 1.2 TiB, then in steps of 2.4 TiB.
FIRST_BLOCK_GIB = 1200
BLOCK_GIB = 2400


def _one_line(value: str) -> str:
    if not value.isprintable() or any(mark in value for mark in FORBIDDEN_IN_SETTING):
        raise ValueError("expected one line without #, backslash or control characters")
    return value


def whole_blocks(gib: int) -> int:
    """Refuse a filesystem size that FSx for Lustre doesn't sell."""
    if gib != FIRST_BLOCK_GIB and gib % BLOCK_GIB:
        raise ValueError("expected 1200 or a multiple of 2400")
    return gib


SettingValue = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_one_line)]

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(duration: str) -> int:
    """Return a duration such as `10m` in seconds."""
    return int(duration[:-1]) * SECONDS[duration[-1]]
