"""Records of money in S3: their keys, their first lines and their bytes. Pure.

docs/adr/0037-records-that-outlive-the-cluster.md has the format. A key says what is inside, so a
reader fetches only the objects that it needs. The same content always has the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model import json_input

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = 1
PREFIX: Final = "records/"
"""The prefix of all records in the bucket of backups."""
SACCT: Final = f"{PREFIX}sacct/"
INSTANCES: Final = f"{PREFIX}instances/"
PRICES: Final = f"{PREFIX}prices/"
METRICS: Final = f"{PREFIX}metrics/"
SLURM_INSTANCES: Final = f"{PREFIX}slurm-instances/"
"""What `sacctmgr show instance` said at the end of each day."""
WRITTEN_BY_HEAD: Final = (SACCT, INSTANCES, PRICES, METRICS, SLURM_INSTANCES)
SIZE_METRIC: Final = "BucketSizeBytes"
NAT_METRICS: Final = ("BytesInFromDestination", "BytesInFromSource")
"""What a NAT gateway receives, of both sides. Each byte that passes is received once."""
STATUS: Final = "status/records.json"
"""The object in the cluster's bucket that tells how far the records reach."""

CLOCKS_DIFFER: Final = 3600
"""Seconds by which S3's times may differ from the head's."""
DAY: Final = 86_400
LEVEL: Final = 6
_TIME: Final = "%Y%m%dT%H%M%SZ"
_DAY: Final = "%Y%m%d"
_STAMP: Final = r"[0-9]{8}T[0-9]{6}Z"
_HASH: Final = r"[0-9a-f]{16}"
_SACCT_KEY: Final = re.compile(rf"{SACCT}({_STAMP})_({_STAMP})_({_STAMP})_({_HASH})\.gz")
_INSTANCES_KEY: Final = re.compile(rf"{INSTANCES}({_STAMP})_({_STAMP})_({_HASH})\.gz")
_PRICES_KEY: Final = re.compile(rf"{PRICES}([a-z0-9-]+)/([0-9]{{8}})_({_HASH})\.gz")
_METRICS_KEY: Final = re.compile(rf"{METRICS}([0-9]{{8}})_({_HASH})\.gz")
_SLURM_INSTANCES_KEY: Final = re.compile(rf"{SLURM_INSTANCES}([0-9]{{8}})_({_HASH})\.gz")


@dataclass(frozen=True, slots=True)
class RecordKey:
    """A key of a page. Times are epoch seconds."""

    key: str
    since: int
    """The first second of its window; of instances: the earliest launch of those that ended."""
    until: int
    first: int
    """The earliest submission, or launch, of those that ended in it."""
    digest: str

    def concerns(self, since: int, until: int) -> bool:
        """Return whether a report of since … until may need the page."""
        return self.until >= since and min(self.since, self.first) < until


def stamp(second: int) -> str:
    """Return a time as keys have it."""
    return datetime.fromtimestamp(second, UTC).strftime(_TIME)


def day_stamp(second: int) -> str:
    """Return a day as keys have it."""
    return datetime.fromtimestamp(second, UTC).strftime(_DAY)


def digest(body: bytes) -> str:
    """Return the hash of an object, as its key has it."""
    return hashlib.sha256(body).hexdigest()[:16]


def sacct_key(since: int, until: int, first: int, body: bytes) -> str:
    """Return the key of a page of sacct."""
    return f"{SACCT}{stamp(until)}_{stamp(since)}_{stamp(first)}_{digest(body)}.gz"


def instances_key(until: int, first: int, body: bytes) -> str:
    """Return the key of a page of instances."""
    return f"{INSTANCES}{stamp(until)}_{stamp(first)}_{digest(body)}.gz"


def prices_key(region: str, day: int, body: bytes) -> str:
    """Return the key of a day of spot prices."""
    return f"{PRICES}{region}/{day_stamp(day)}_{digest(body)}.gz"


def metrics_key(day: int, body: bytes) -> str:
    """Return the key of a day of CloudWatch's metrics."""
    return f"{METRICS}{day_stamp(day)}_{digest(body)}.gz"


def slurm_instances_key(day: int, body: bytes) -> str:
    """Return the key of a day of Slurm's own list of instances."""
    return f"{SLURM_INSTANCES}{day_stamp(day)}_{digest(body)}.gz"


def parse_key(key: str) -> RecordKey | None:
    """Read the key of a record; None for another."""
    try:
        if match := _SACCT_KEY.fullmatch(key):
            until, since, first = map(_second, match.groups()[:3])
            return RecordKey(key, since, until, first, match[4])
        if match := _INSTANCES_KEY.fullmatch(key):
            until, first = map(_second, match.groups()[:2])
            return RecordKey(key, first, until, first, match[3])
        if match := _PRICES_KEY.fullmatch(key):
            return _day_key(key, match[2], match[3])
        if match := _METRICS_KEY.fullmatch(key) or _SLURM_INSTANCES_KEY.fullmatch(key):
            return _day_key(key, match[1], match[2])
    except ValueError:  # no such day
        return None
    return None


def first_line(
    kind: str, cluster: str, window: tuple[int, int], written: int, **more: object
) -> dict[str, Any]:
    """Return the first line of an object, with more of its kind."""
    since, until = window
    line = {"kind": kind, "cluster": cluster, "since": since, "until": until, "written": written}
    return {"format": FORMAT, **line, **more}


def pack(header: Mapping[str, Any], content: str) -> bytes:
    """Return the bytes of an object."""
    text = f"{json.dumps(header, separators=(',', ':'), sort_keys=True)}\n{content}"
    return gzip.compress(text.encode("utf-8", errors="surrogateescape"), LEVEL, mtime=0)


def unpack(body: bytes) -> tuple[dict[str, Any], str]:
    """Return the first line and the content of an object. Raises ValueError."""
    try:
        text = gzip.decompress(body).decode(errors="replace")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"no gzip: {error}") from error
    line, _, content = text.partition("\n")
    header = json_input.loads(line)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError("the first line has no format that this version knows")
    return header, content


def _day_key(key: str, text: str, digest: str) -> RecordKey:
    day = _second(f"{text}T000000Z")
    return RecordKey(key, day, day + DAY, day, digest)


def _second(text: str) -> int:
    # strptime takes twenty times as long, and a closing reads a thousand keys.
    return int(datetime.fromisoformat(text).timestamp())
