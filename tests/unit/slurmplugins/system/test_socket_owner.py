"""The kernel's tables say whose a connection is, and only while it is established."""

import pytest

from slurmplugins.system import socket_owner
from slurmplugins.system.socket_owner import find_owner

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid ..."
NODE, HEAD = ("10.42.1.20", 40_001), ("10.42.1.10", 5000)
# Addresses as a little-endian machine writes them, which all of EC2's are.
V4 = "14012A0A:9C41 0A012A0A:1388"
MAPPED = "0000000000000000FFFF000014012A0A:9C41 0000000000000000FFFF00000A012A0A:1388"


def row(ends=V4, state="01", uid=2001, inode=77):
    queues = "00000000:00000000 00:00000000 00000000"
    return f"   4: {ends} {state} {queues} {uid:5} 0 {inode} 1 0 20 4 24"


def test_an_established_connection_is_its_users():
    assert find_owner([HEADER, row()], NODE, HEAD) == 2001


def test_a_connection_of_a_dual_stack_socket_is_found_too():
    """Find what gRPC opens: an IPv6 socket that speaks IPv4."""
    assert find_owner([HEADER, row(MAPPED)], NODE, HEAD) == 2001


@pytest.mark.parametrize("state", ["02", "04", "05", "06", "07", "08", "09", "0A", "0B"])
def test_a_connection_that_begins_or_ends_is_nobodys(state):
    """Find nobody, where the kernel would write uid 0."""
    assert find_owner([HEADER, row(state=state, uid=0)], NODE, HEAD) is None


def test_a_socket_that_its_process_has_closed_is_nobodys():
    assert find_owner([HEADER, row(uid=0, inode=0)], NODE, HEAD) is None


def test_another_connection_is_not_taken_for_it():
    other = row(V4.replace("9C41", "9C42"), uid=2002)
    reverse = row(" ".join(reversed(V4.split())), uid=2002)
    assert find_owner([HEADER, other, reverse, "", "  9: broken"], NODE, HEAD) is None
    assert find_owner([other, row()], NODE, HEAD) == 2001


def test_a_line_that_the_kernel_left_out_is_found_at_a_second_look(tmp_path, monkeypatch):
    """Find a line that a table lacks while it changes.

    No table of IPv6 is needed.
    """
    looks = []

    def find(lines, local, remote):
        looks.append(list(lines))
        return 2001 if len(looks) == 2 else None

    monkeypatch.setattr(socket_owner, "find_owner", find)
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(HEADER)
    assert socket_owner.read_owner(NODE, HEAD, tmp_path) == 2001
    assert looks == [[HEADER]] * 2
    monkeypatch.setattr(socket_owner, "find_owner", lambda *_: None)
    assert socket_owner.read_owner(NODE, HEAD, tmp_path) is None
