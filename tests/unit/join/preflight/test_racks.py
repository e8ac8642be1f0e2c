"""Questions to racks: what job scripts find there."""

from __future__ import annotations

from toolkit.join.errors import SiteCommandFailed
from toolkit.join.preflight.facts import Rack, Unanswered
from toolkit.join.preflight.racks import FILES, ask


class RackHost:
    """A rack on which commands with some words fail."""

    host = "rack01"

    def __init__(self, *failing: str, code: int = 1) -> None:
        self.failing, self.code = failing, code

    def run(self, argv, *, timeout=60, stdin=b""):
        assert timeout > 0
        assert not stdin
        if any(word in argv for word in self.failing):
            raise SiteCommandFailed(f"rack01: {argv[0]}\nfails", returncode=self.code)
        return ""


def test_a_rack_that_has_everything_lacks_nothing():
    assert ask(RackHost()) == Rack("rack01", has_boto3=True)


def test_what_a_rack_lacks_is_named():
    assert ask(RackHost("import boto3", FILES[1])) == Rack(
        "rack01", has_boto3=False, missing=(FILES[1],)
    )


def test_a_rack_without_python_has_no_boto3():
    assert ask(RackHost("import boto3", code=127)) == Rack("rack01", has_boto3=False)


def test_a_rack_that_can_not_be_reached_is_a_question_without_an_answer():
    for code in (255, -1):
        assert ask(RackHost("import boto3", code=code)) == Unanswered(
            "the rack rack01", "rack01: /usr/bin/python3 fails"
        )
