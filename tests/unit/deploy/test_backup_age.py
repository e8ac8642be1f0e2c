"""The age of the last good backup, and when a person should look."""

import pytest

from toolkit.deploy.backup_age import LastBackup, age_text, parse, warning

HOUR = 3600
NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("hours", "error", "text"),
    [
        (1, "", ""),
        (17.9, "", ""),
        (18.1, "", "the last good backup is 18 h old, and one is due every 6 h"),
        (1, "no space", "the last backup failed: no space"),
        (50, "no space", "the last good backup is 2 d old, and one is due every 6 h: no space"),
    ],
)
def test_a_backup_older_than_three_periods_is_a_warning(hours, error, text):
    last = LastBackup("2026-11-25T22-20-00Z", NOW - hours * HOUR, error)
    assert warning(last, 6 * HOUR, NOW, NOW - 100 * HOUR) == text


def test_a_new_head_has_time_for_its_first_backup():
    assert warning(LastBackup(), 6 * HOUR, NOW, NOW - 17 * HOUR) == ""
    old = warning(LastBackup(), 6 * HOUR, NOW, NOW - 19 * HOUR)
    assert old == "the last good backup does not exist, and one is due every 6 h"


@pytest.mark.parametrize("status", [None, {}, {"good": None}, {"good": 7}, {"good": {"at": "x"}}])
def test_what_the_head_has_not_written_is_no_backup(status):
    assert parse(status) == LastBackup()


def test_the_heads_words_are_read():
    status = {"good": {"id": "b", "at": 5, "bytes": 1}, "error": "e", "error_at": 6}
    assert parse(status) == LastBackup("b", 5.0, "e")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (90, "90 s"), (120, "2 min"), (3600, "1 h"), (7100, "118 min"), (86_400, "1 d")],
)
def test_ages_are_short(seconds, text):
    assert age_text(seconds) == text
