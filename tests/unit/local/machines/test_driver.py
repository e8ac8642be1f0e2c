"""A machine's description is refused if a part is unsafe.

Each part goes into a path or a command line.
"""

import pytest

from toolkit.local.machines.driver import check_image_id, check_instance_id
from toolkit.local.machines.errors import MachineError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("instance_id", "i-../../etc"),
        ("instance_id", "i-0123456789abcdef0\n"),
        ("instance_id", ""),
        ("image_id", "ami-0/../../x"),
        ("image_id", "base"),
        ("hostname", "-rf"),
        ("hostname", "a b"),
        ("hostname", "x" * 64),
        ("hostname", "Caps.example"),
        ("vpc_id", "vpc-$(id)"),
        ("mac", "02:00:00:00:00"),
        ("environment", {"A-B": "x"}),
        ("environment", {"PATH=": "x"}),
        ("environment", {"A": "x\ny"}),
        ("environment", {"A": "x\0y"}),
    ],
)
def test_a_machine_spec_with_an_invalid_field_is_refused(make_spec, field, value):
    with pytest.raises(MachineError):
        make_spec(**{field: value})


def test_a_machine_has_either_an_address_or_the_hosts_network(make_spec, make_builder):
    with pytest.raises(MachineError, match="exclude each other"):
        make_spec(host_network=True)
    with pytest.raises(MachineError, match="exclude each other"):
        make_spec(address=None)
    assert make_builder().address is None


@pytest.mark.parametrize("bad", ["", ".", "..", "/", "i-xyz", "i-0123456789abcdef0/.."])
def test_an_invalid_instance_or_image_id_is_refused(bad):
    with pytest.raises(MachineError):
        check_instance_id(bad)
    with pytest.raises(MachineError):
        check_image_id(bad)
