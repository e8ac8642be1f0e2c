"""Hostile, half and missing answers of a site, and a site that hangs."""

from __future__ import annotations

import json

import pytest

from tests.golden.join.recorded import RecordedSite
from tests.golden.join.sides import FITTING
from toolkit.join.errors import SiteCommandFailed
from toolkit.join.preflight import answers, check_site, site_checks
from toolkit.join.preflight.facts import Account, Clock
from toolkit.join.preflight.questions import MOST_SECONDS, Questions
from toolkit.join.site import read_site
from toolkit.output import PlainReporter

CHRONY = (  # chronyc 4.3 -c tracking, of an EC2 instance
    "A9FEA97B,169.254.169.123,4,1795671574.194,0.000004102,0.000003301,0.000015,-11.5,"
    "0.001,0.02,0.0005,0.0001,16.2,Normal\n"
)
TIMEDATECTL = "Timezone=Etc/UTC\nLocalRTC=no\nNTP=yes\nNTPSynchronized=no\n"
FEDERATION = "Federation: grid\nSelf:       rack:10.10.0.5:6817 ID:1 FedState:ACTIVE Features:\n"
ODD_JSON = ["", "{", "[]", "null", '{"nodes": 3}', '{"nodes": [7]}', "[" * 100_000,
            '{"nodes": [{"cpus": "x"}]}', '{"nodes": [{"cpus": Infinity}]}']  # fmt: skip


class OtherSite(RecordedSite):
    """The site that fits, with other answers to some commands."""

    def __init__(self, **others) -> None:
        super().__init__("24.11", "fit")
        self.others = others
        self.asked = []

    def run(self, argv, *, timeout=60, stdin=b""):
        self.asked.append(argv)
        for word, answer in self.others.items():
            if word in argv:
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return super().run(argv, timeout=timeout, stdin=stdin)


def ask(site, **options):
    return Questions(site, read_site(RecordedSite("24.11", "fit")), **options).ask(FITTING)


@pytest.mark.parametrize("text", ODD_JSON, ids=range(len(ODD_JSON)))
def test_an_odd_answer_becomes_a_note(text):
    facts = ask(OtherSite(nodes=text))
    assert facts.nodes is None
    [note] = [item for item in facts.unanswered if item.question.startswith("scontrol show nodes")]
    assert "another shape" in note.reason
    assert len(note.reason) <= 300
    assert site_checks(facts, FITTING) == ()


@pytest.mark.parametrize("command", ["nodes", "licenses", "reservations", "federation", "ss", "ip"])
def test_a_command_that_fails_becomes_a_note(command):
    facts = ask(OtherSite(**{command: SiteCommandFailed("no such\ncommand", returncode=127)}))
    assert [item.reason for item in facts.unanswered if "timedatectl" not in item.question] == [
        "no such command"
    ]


def test_a_site_that_hangs_holds_nobody_for_each_question():
    now = [0.0]

    class Hanging:
        asked = 0

        def run(self, argv, *, timeout=60, stdin=b""):
            del stdin
            self.asked += 1
            now[0] += timeout
            raise SiteCommandFailed(f"{argv[0]} took longer than {timeout:.0f} s")

    site = Hanging()
    facts = ask(site, clock=lambda: now[0])
    assert now[0] <= MOST_SECONDS
    assert facts.unanswered[-1].reason.startswith("not asked")
    assert facts.nodes is None


def test_a_site_without_any_answer_ends_the_check():
    class Away:
        def run(self, argv, *, timeout=60, stdin=b""):
            raise SiteCommandFailed("ssh: connect to host rack-head port 22: No route to host")

    with pytest.raises(SiteCommandFailed, match="No route"):
        read_site(Away())


def test_users_of_jobs_are_asked_for_by_their_uid():
    line = "ada:x:2001:2001::/shared/home/ada:/bin/sh\n"
    site = OtherSite(**{"2001": line, "--format=%U": "2001\n-1\nroot\n", "--format=UID": "2001\n"})
    assert ask(site).job_users == (Account("ada", 2001, 2001, "/shared/home/ada"),)
    lookups = [argv for argv in site.asked if "getent" in argv and "passwd" in argv]
    assert lookups[-1][-1] == "2001"


def test_a_missing_account_is_a_user_without_a_name():
    error = SiteCommandFailed(
        "exit code 2", returncode=2, stdout="ada:x:2001:2001::/h/ada:/bin/sh\n"
    )
    site = OtherSite(**{"2001": error, "--format=%U": "2001\n2077\n", "--format=UID": "2077\n"})
    assert [user.name for user in ask(site).job_users] == ["ada", ""]


def test_a_name_that_looks_like_an_option_is_not_asked_for():
    from dataclasses import replace

    site = OtherSite()
    cloud = replace(FITTING, nodes=("--version", *FITTING.nodes))
    Questions(site, read_site(RecordedSite("24.11", "fit"))).ask(cloud)
    assert not any("--version" in argv for argv in site.asked)


def test_only_lists_of_arguments_are_run():
    site = OtherSite()
    ask(site)
    assert all(argv[0].startswith("/") for argv in site.asked)
    assert not any(
        word in {"sh", "bash", "-c"} for argv in site.asked for word in argv[:4] if word != "-c"
    )


def test_the_clock_is_chronys_where_there_is_one():
    assert ask(OtherSite(chronyc=CHRONY)).clock == Clock(
        synchronized=True, offset_seconds=0.000004102
    )
    assert ask(OtherSite(timedatectl=TIMEDATECTL)).clock == Clock(synchronized=False)
    assert answers.chrony(CHRONY.replace("Normal", "Not synchronised")).synchronized is False


def test_the_federation_has_a_name():
    assert answers.federation(FEDERATION) == "grid"
    assert answers.federation("") == ""


def test_a_passwd_line_of_another_shape_is_passed_over():
    text = "ada:x:2001:2001::/h:/bin/sh\n:::::::::\nx:y:-1:²::/:/\n" + "e:x:9999999999999:1:::\n"
    assert list(answers.passwd(text)) == ["ada"]


def test_the_check_of_a_joined_site_leaves_our_own_nodes_out():
    ours = json.loads(
        RecordedSite("24.11", "fit").run(["/usr/bin/scontrol", "show", "nodes", "--json"])
    )
    ours["nodes"].append({**ours["nodes"][0], "name": "cpu-001", "address": "10.42.0.9"})
    site = read_site(RecordedSite("24.11", "fit"))
    runner = OtherSite(nodes=json.dumps(ours))
    assert check_site(runner, site, FITTING, PlainReporter(), joined=True).ready
    assert not check_site(runner, site, FITTING, PlainReporter()).ready
