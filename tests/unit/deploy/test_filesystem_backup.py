"""The last backup of the shared filesystem is waited for, and made once."""

import pytest

from tests.unit.deploy.samples import Clock, Report, example
from toolkit.deploy import filesystem_backup
from toolkit.errors import DestroyIncomplete


class Fsx:
    """FSx with one filesystem of the cluster, one of another, and backups that take a while."""

    def __init__(self, clock) -> None:
        self.clock, self.final = clock, "AVAILABLE"
        self.backups, self.requests = {}, []
        self.filesystems = {"fs-1": "demo", "fs-2": "other"}

    def get_paginator(self, operation):
        self.operation = operation
        return self

    def paginate(self, *, Filters=()):  # noqa: N803  # boto3's names
        if self.operation == "describe_backups":
            ((filesystem,),) = (item["Values"] for item in Filters)
            return [
                {"Backups": [x for x in self.backups.values() if x["FileSystemId"] == filesystem]}
            ]
        rows = [
            {"FileSystemId": key, "Tags": [{"Key": "toolkit:cluster", "Value": cluster}]}
            for key, cluster in self.filesystems.items()
        ]
        return [{"FileSystems": rows}]

    def create_backup(self, *, FileSystemId, Tags):  # noqa: N803  # boto3's names
        self.requests.append(FileSystemId)
        backup = f"backup-{len(self.backups)}"
        row = {"BackupId": backup, "FileSystemId": FileSystemId, "Tags": Tags}
        self.backups[backup] = {**row, "Lifecycle": "CREATING"}
        self.clock.at(30, lambda: self.backups[backup].update(Lifecycle=self.final))
        return {"Backup": self.backups[backup]}

    def describe_backups(self, *, BackupIds):  # noqa: N803  # boto3's names
        return {"Backups": [self.backups[key] for key in BackupIds]}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def fsx(clock):
    return Fsx(clock)


def make(fsx, clock):
    report = Report()
    filesystem_backup.make(fsx, example(), report, clock.sleep, clock)
    return report


def test_the_clusters_own_filesystem_is_backed_up_and_waited_for(fsx, clock):
    began = clock()
    report = make(fsx, clock)
    assert fsx.requests == ["fs-1"]
    assert clock() - began >= 30
    assert report.lines == ["Backing up filesystem fs-1", "backup-0 stays"]


def test_a_backup_that_an_interrupted_destroy_began_is_not_made_twice(fsx, clock):
    make(fsx, clock)
    make(fsx, clock)
    assert fsx.requests == ["fs-1"]


def test_a_failed_backup_ends_the_destroy_and_is_made_again(fsx, clock):
    fsx.final = "FAILED"
    with pytest.raises(DestroyIncomplete, match="backup-0 is FAILED"):
        make(fsx, clock)
    fsx.final = "AVAILABLE"
    make(fsx, clock)
    assert fsx.requests == ["fs-1", "fs-1"]
