"""A manifest is read as it was written, and says where its backup may be restored."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from slurmplugins.errors import BackupError
from slurmplugins.model import backup
from slurmplugins.model.backup import BackupObject, Manifest, Versions

HERE = Versions("24.11.5", "11.8.3", "0.1.0", "3.17.2", "5.0.0")
MANIFEST = Manifest(
    id="2026-11-25T22-20-00Z",
    cluster="demo",
    at=1_795_645_200.0,
    next_job_id=4712,
    versions=HERE,
    objects=tuple(
        BackupObject(name, 10, "a" * 64)
        for name in (
            "slurm_acct_db.sql.gz",
            "mlflow.sql.gz",
            "optuna.sql.gz",
            "slurmctld.tar.gz",
        )
    ),
)


def saved(**versions: str) -> Manifest:
    return replace(MANIFEST, versions=replace(HERE, **versions))


def test_a_manifest_is_read_as_it_was_written():
    assert backup.parse(json.dumps(MANIFEST.to_json())) == MANIFEST
    assert MANIFEST.databases == backup.DATABASES


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "version 2"),
        ({"id": "../../etc"}, "no id of a backup"),
        ({"id": "2026-13-45T22-20-00Z"}, "no id of a backup"),
        ({"objects": [{"name": "../x.sql.gz", "bytes": 1, "sha256": "a" * 64}]}, "no object"),
        ({"objects": [{"name": "mlflow.sql.gz", "bytes": 1, "sha256": "A"}]}, "no SHA-256"),
        ({"objects": [{"name": "mlflow.sql.gz", "bytes": 1, "sha256": "a" * 64}]}, "accounting"),
        ({"objects": "all"}, "can't be read"),
        ({"versions": ["24.11.5"]}, "can't be read"),
        ({"next_job_id": None}, "can't be read"),
    ],
)
def test_a_manifest_of_another_shape_is_refused_with_the_reason(change, reason):
    with pytest.raises(BackupError, match=reason):
        backup.parse(json.dumps({**MANIFEST.to_json(), **change}))


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff\xfe"])
def test_what_is_no_manifest_at_all_is_refused(text):
    with pytest.raises(BackupError, match="the manifest can't be read"):
        backup.parse(text)


def test_an_id_tells_its_time_and_later_ids_sort_later():
    first, second = backup.new_id(1_795_645_200.0), backup.new_id(1_795_645_201.5)
    assert backup.is_id(first)
    assert backup.time_of(first) == 1_795_645_200.0
    assert first < second
    assert not backup.is_id("latest")


@pytest.mark.parametrize(
    ("saved_next", "here_next", "first"),
    [
        (1, 1, 20_000),
        (4712, 1, 20_000),
        (9_999, 3, 20_000),
        (10_000, 3, 30_000),
        (5, 31_007, 50_000),
    ],
)
def test_job_ids_go_on_a_whole_gap_beyond_all_that_were_used(saved_next, here_next, first):
    """Leave room for jobs that began after the backup was taken."""
    manifest = replace(MANIFEST, next_job_id=saved_next)
    assert backup.first_job_id(manifest, here_next) == first
    assert first - max(saved_next, here_next) > backup.JOB_ID_GAP


@pytest.mark.parametrize(
    ("saved_slurm", "here_slurm"),
    [
        ("24.11.5", "24.11.3"),
        ("24.05.2", "24.11.5"),
        ("23.11.4", "24.11.5"),
        ("24.05.8", "25.11.8"),
        ("25.11.8", "26.05.1"),
    ],
)
def test_a_slurm_of_the_same_or_a_later_series_takes_the_backup(saved_slurm, here_slurm):
    assert backup.version_problems(saved(slurm=saved_slurm), replace(HERE, slurm=here_slurm)) == ()


@pytest.mark.parametrize(
    ("saved_slurm", "here_slurm", "reason"),
    [
        ("25.05.1", "24.11.5", "older than the backup's 25.05.1"),
        ("23.11.4", "25.11.8", "at most 3 releases before it"),
        ("23.11.4", "26.05.1", "at most 3 releases"),
        ("22.05.1", "24.05.3", "at most 2 releases"),
        ("junk", "24.11.5", "no release that the toolkit knows"),
        ("24.11.5", "24.12.1", "no release that the toolkit knows"),
    ],
)
def test_a_slurm_that_can_not_take_the_database_is_named(saved_slurm, here_slurm, reason):
    problems = backup.version_problems(saved(slurm=saved_slurm), replace(HERE, slurm=here_slurm))
    assert len(problems) == 1
    assert reason in problems[0]


def test_every_program_that_does_not_match_is_named():
    manifest = saved(slurm="25.05.1", mariadb="12.0.2", mlflow="3.18.0", optuna="6.0.0")
    problems = "; ".join(backup.version_problems(manifest, HERE))
    for text in ("Slurm here is 24.11.5", "MariaDB here is 11.8.3", "MLflow here", "Optuna here"):
        assert text in problems


def test_a_newer_mariadb_takes_an_older_dump():
    assert backup.version_problems(saved(mariadb="10.11.13"), HERE) == ()


def test_a_cluster_without_mlflow_takes_the_accounting_alone():
    here = replace(HERE, mlflow="", optuna="")
    assert backup.restorable(MANIFEST, here) == (backup.ACCOUNTING,)
    assert backup.version_problems(saved(mlflow="1.0.0"), here) == ()
