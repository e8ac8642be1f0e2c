"""Access to the instance metadata service, by the names of users."""

from __future__ import annotations

import pwd

import pytest

from slurmplugins.errors import BadName
from slurmplugins.imds_access import parse, uids_of


def test_root_is_always_allowed_and_others_by_name():
    assert uids_of([]) == {0}
    assert uids_of([pwd.getpwuid(65534).pw_name]) == {0, 65534}


def test_a_user_that_does_not_exist_is_an_error():
    """Open nothing by mistake: the program ends, and its unit fails."""
    with pytest.raises(BadName, match="no user 'nosuchuser'"):
        uids_of(["root", "nosuchuser"])


def test_the_program_takes_users_and_a_check():
    options = parse(["--allow", "slurm", "--check"])
    assert (options.allow, options.check) == (["slurm"], True)
    assert (parse([]).allow, parse([]).check) == ([], False)
