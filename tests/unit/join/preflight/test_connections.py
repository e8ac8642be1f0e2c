"""Measurements through a tunnel, from real answers of ping."""

from __future__ import annotations

import json

import pytest

from toolkit.join.errors import SiteCommandFailed
from toolkit.join.preflight.connections import Target, measure, path_mtu
from toolkit.join.preflight.facts import PathMtu

LOST = "2 packets transmitted, 0 received, 100% packet loss, time 201ms\n"
TOLD_HERE = "ping: local error: message too long, mtu=1500\n" + LOST
TOLD_BY_GATEWAY = "From 10.10.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1400)\n" + LOST


class Path:
    """A path that lets packets up to a size through."""

    def __init__(
        self, size, refusal, *, here=1500, connect='{"outcome": "open", "seconds": [0.02]}'
    ) -> None:
        self.size, self.refusal, self.here, self.connect = size, refusal, here, connect
        self.programs = []

    def run(self, argv, *, timeout=60, stdin=b""):
        assert timeout > 0
        if "python3" in argv:
            self.programs.append(stdin)
            if isinstance(self.connect, Exception):
                raise self.connect
            return self.connect
        size = int(argv[argv.index("-s") + 1]) + 28
        if size <= self.size:
            return "2 packets transmitted, 2 received, 0% packet loss"
        answer = TOLD_HERE if size > self.here else self.refusal
        raise SiteCommandFailed("exit code 1", returncode=1, stdout=answer)


@pytest.mark.parametrize(
    ("size", "refusal", "expected"),
    [
        (1500, LOST, PathMtu("site", "10.42.0.9", 1500, told=True)),
        (1400, TOLD_BY_GATEWAY, PathMtu("site", "10.42.0.9", 1400, told=True)),
        (1438, LOST, PathMtu("site", "10.42.0.9", 1420, told=False)),
        (0, LOST, PathMtu("site", "10.42.0.9", None)),
    ],
)
def test_the_longest_packet_that_passes_is_found(size, refusal, expected):
    assert path_mtu(Path(size, refusal), "site", "10.42.0.9") == expected


def test_jumbo_frames_pass_where_the_card_has_them():
    assert path_mtu(Path(9001, LOST, here=9001), "cloud", "h").bytes == 9001


@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"outcome": "maybe", "seconds": []}',
                                    '{"outcome": "open", "seconds": ["x"]}'])  # fmt: skip
def test_an_odd_answer_of_the_program_becomes_a_note(answer):
    result = measure(Path(1500, LOST, connect=answer), "site", [Target("10.42.0.9", 22)])
    assert not result.connections
    assert len(result.unanswered) == 1


def test_a_host_without_python_becomes_a_note():
    path = Path(1500, LOST, connect=SiteCommandFailed("python3: not found", returncode=127))
    [note] = measure(path, "cloud", [Target("rack-head", 6817)]).unanswered
    assert "rack-head:6817" in note.question


def test_no_packet_is_sent_to_a_host_that_is_not_reached():
    silent = json.dumps({"outcome": "silent", "seconds": []})
    result = measure(Path(1500, LOST, connect=silent), "site", [Target("10.42.0.9", 22)])
    assert [item.outcome for item in result.connections] == ["silent"]
    assert result.path_mtus == ()


def test_the_program_comes_by_standard_input():
    path = Path(1500, LOST)
    measure(path, "site", [Target("10.42.0.9", 22)])
    assert path.programs[0].startswith(b'"""Connect to a port')


@pytest.mark.parametrize("text", ["", "host", ":22", "host:", "host:0", "host:70000", "host:²",
                                  "-oProxyCommand=x:22", "a b:22", "h;x:22"])  # fmt: skip
def test_a_target_is_a_host_and_a_port(text):
    with pytest.raises(ValueError, match="expected"):
        Target.parse(text)


def test_a_target_may_be_a_name_or_an_address():
    assert Target.parse("10.42.0.9:22") == Target("10.42.0.9", 22)
    assert Target.parse("node-1.example.org:6818") == Target("node-1.example.org", 6818)
