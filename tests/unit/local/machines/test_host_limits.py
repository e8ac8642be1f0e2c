"""The limit of inotify instances is raised for machines, and never lowered."""

import pytest

from toolkit.local.machines.host_limits import INOTIFY_INSTANCES, raise_inotify_limit


@pytest.mark.parametrize(
    ("limit", "expected"), [(128, INOTIFY_INSTANCES), (8192, 8192), (INOTIFY_INSTANCES,) * 2]
)
def test_the_limit_is_raised_to_what_machines_need_and_never_lowered(tmp_path, limit, expected):
    path = tmp_path / "sys/fs/inotify/max_user_instances"
    path.parent.mkdir(parents=True)
    path.write_text(f"{limit}\n")
    raise_inotify_limit(tmp_path)
    raise_inotify_limit(tmp_path)
    assert int(path.read_text()) == expected


def test_a_host_without_the_limit_is_left_as_it_is(tmp_path):
    raise_inotify_limit(tmp_path)
    assert list(tmp_path.iterdir()) == []
