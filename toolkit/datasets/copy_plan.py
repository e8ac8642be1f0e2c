"""Plan a copy between a filesystem and S3: what must move, for how long, for how much. Pure."""

from collections.abc import Container
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from toolkit.datasets.store.manifest import File, Manifest
from toolkit.datasets.store.s3_store import MOST_PARTS

Direction = Literal["put", "get"]

GB = 1_000_000_000
_MEGABITS_IN_GB = 8000
_PUTS_OF_LARGE_FILE = 3  # list the uploads, create one, complete it
_RECORD_REQUESTS = 6  # the manifest, the name, the marker of an addition, their lists
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class CopyRates:
    """The line and the prices of a copy.

    The prices are those of S3 Standard in us-east-1 (aws.amazon.com/s3/pricing, 2026). Data that
    goes into AWS is free; data that leaves it over the internet costs most.
    """

    mbit_per_second: float = 1000.0
    usd_per_gb_out: Decimal = Decimal("0.09")
    usd_per_1000_puts: Decimal = Decimal("0.005")
    usd_per_1000_gets: Decimal = Decimal("0.0004")


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """A copy that is still to be made."""

    direction: Direction
    version: str
    files: int
    size: int
    missing_files: int
    missing_bytes: int
    seconds: float
    usd: Decimal

    def __str__(self) -> str:
        """Return the plan as one sentence."""
        if not self.missing_files:
            return f"nothing to copy: all {self.files:,} files, {gb(self.size)}, are there"
        verb = "send" if self.direction == "put" else "fetch"
        return (
            f"would {verb} {self.missing_files:,} of {self.files:,} files, {gb(self.missing_bytes)}"
            f" of {gb(self.size)}: about {duration(self.seconds)},"
            f" {self.usd.quantize(_CENT)} USD for S3 and the transfer"
        )


def plan_put(manifest: Manifest, stored_objects: Container[str], rates: CopyRates) -> CopyPlan:
    """Plan to send the content that the store lacks.

    Equal files are sent once.
    """
    contents = {file.object: file for file in manifest.files}.values()
    missing_files = [file for file in contents if file.object not in stored_objects]
    puts = _RECORD_REQUESTS + sum(map(_puts, missing_files))
    usd = _request_usd(puts, len(contents), rates)
    return _plan("put", manifest, missing_files, usd, rates)


def plan_get(manifest: Manifest, present_paths: Container[str], rates: CopyRates) -> CopyPlan:
    """Plan to fetch the files that the folder lacks."""
    missing_files = [file for file in manifest.files if file.path not in present_paths]
    gets = sum(len(file.chunks) for file in missing_files)
    usd = _request_usd(1, gets + _RECORD_REQUESTS, rates)
    usd += Decimal(sum(file.size for file in missing_files)) / GB * rates.usd_per_gb_out
    return _plan("get", manifest, missing_files, usd, rates)


def transfer_seconds(size: int, rates: CopyRates) -> float:
    """Return the seconds that so many bytes are on the line."""
    return size / GB * _MEGABITS_IN_GB / rates.mbit_per_second


def site_data(size: int) -> str:
    """Return the word of a job's comment that the burst governor reads."""
    return f"site-data={-(-size // 1_000_000) / 1000:.3f}G"


def gb(size: int) -> str:
    """Return bytes in GB, as text."""
    return f"{size / GB:,.3f} GB"


def duration(seconds: float) -> str:
    """Return seconds as text, in the unit that people use for them."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def _plan(
    direction: Direction,
    manifest: Manifest,
    missing_files: list[File],
    usd: Decimal,
    rates: CopyRates,
) -> CopyPlan:
    missing_bytes = sum(file.size for file in missing_files)
    return CopyPlan(
        direction=direction,
        version=manifest.version,
        files=len(manifest.files),
        size=manifest.size,
        missing_files=len(missing_files),
        missing_bytes=missing_bytes,
        seconds=transfer_seconds(missing_bytes, rates),
        usd=usd if missing_files else Decimal(0),
    )


def _puts(file: File) -> int:
    """Return the requests that S3 prices as PUT for one file."""
    if len(file.chunks) == 1:
        return 1
    chunks_in_part = -(-len(file.chunks) // MOST_PARTS)
    return -(-len(file.chunks) // chunks_in_part) + _PUTS_OF_LARGE_FILE


def _request_usd(puts: int, gets: int, rates: CopyRates) -> Decimal:
    return (puts * rates.usd_per_1000_puts + gets * rates.usd_per_1000_gets) / 1000
