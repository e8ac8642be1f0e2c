"""Commands on a controller: no word is split, whatever is in it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings, strategies as st

from tests.unit.join.sites import join
from toolkit.join.errors import SiteCommandFailed
from toolkit.join.runner import ControllerRunner, FirstController

# What ssh does: the arguments joined by spaces, for a shell.
SSH = ("/bin/sh", "-c", 'shift; exec /bin/sh -c "$*"', "ssh", "root@{host}")
ECHO = [sys.executable, "-c", "import sys; sys.stdout.write(repr(sys.argv[1:]))"]
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)


@settings(max_examples=15, deadline=None)
@given(st.lists(WORDS, max_size=3))
def test_words_arrive_as_they_are(words):
    for ssh in (SSH, ()):
        assert ControllerRunner("ctl", ssh).run([*ECHO, *words]) == repr(words)


def test_input_arrives_too():
    copy = [sys.executable, "-c", "import sys; print(sys.stdin.buffer.read())"]
    assert ControllerRunner("ctl", SSH).run(copy, stdin=b"\0x") == "b'\\x00x'\n"


def test_a_failure_says_where_and_why():
    with pytest.raises(SiteCommandFailed) as caught:
        ControllerRunner("ctl", SSH).run(["/bin/sh", "-c", "echo no >&2; exit 3"])
    assert (caught.value.returncode, caught.value.stderr) == (3, "no\n")
    assert caught.value.message.startswith("ctl: /bin/sh -c")


def test_ssh_without_a_connection_says_how_to_try_it():
    runner = ControllerRunner("ctl", ("/bin/sh", "-c", "exit 255", "root@{host}"))
    with pytest.raises(SiteCommandFailed, match="root@ctl true` possible without a password"):
        runner.run(["true"])


def test_a_program_without_a_folder_is_looked_for_in_the_sites_own(tmp_path):
    program = tmp_path / "sacct-of-site"
    program.write_text("#!/bin/sh\necho it ran: $1\n")
    program.chmod(0o755)
    site = join().joined_site.model_copy(
        update={"controllers": ("ctl",), "ssh": SSH, "slurm_bin": str(tmp_path)}
    )
    words = ["env", "TZ=UTC", "sacct-of-site", "--helpformat"]
    assert FirstController(site).run(words) == "it ran: --helpformat\n"


def test_a_command_that_hangs_ends():
    with pytest.raises(SiteCommandFailed, match="took longer"):
        ControllerRunner("ctl", ()).run(["/bin/sleep", "60"], timeout=0.1)
