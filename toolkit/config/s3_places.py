"""Checks that the places of jobs' data in S3 lie apart, because jobs' rights in them differ.

A job reads all datasets, and the checkpoints of its own user only. If one place contained the
other, each job could read the checkpoints of all users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.config.raw import mapping
from toolkit.config.training import CHECKPOINTS_PREFIX, DATA_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config.raw import Finding, KeyPath

OWN_BUCKET = "bucket"
_SCHEME = "s3://"


def s3_place_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding where one place contains the other."""
    store = mapping(raw, "data").get("store")
    checkpoints = mapping(raw, "training").get("checkpoints")
    data, runs = _prefix(store, DATA_PREFIX), _prefix(checkpoints, CHECKPOINTS_PREFIX)
    if data and runs and (data.startswith(runs) or runs.startswith(data)):
        path: KeyPath = ("training", "checkpoints")
        why = "one contains the other, and every job reads all datasets"
        yield path, f"expected a place apart from data.store {store}: {why}"


def _prefix(place: object, own_prefix: str) -> str | None:
    """Return BUCKET/FOLDER/ of a place, None where it is not in S3."""
    if place == OWN_BUCKET:
        return f"{OWN_BUCKET}:/{own_prefix}/"  # no bucket's name has a colon
    if isinstance(place, str) and place.startswith(_SCHEME):
        return place.removeprefix(_SCHEME).strip("/") + "/"
    return None
