"""The first files of a machine.

A builder gets the host's access to packages. A machine of the VPC gets only a hostname.
"""

import stat

from toolkit.local.machines import seed_files
from toolkit.local.machines.host_settings import HostSettings

HOST = HostSettings(
    apt_options=(("Acquire::http::Proxy", "http://u:secret@proxy:3128"),),
    apt_auth=b"machine a login u password secret\n",
    pip=(("find-links", "/wheels"), ("index-url", "https://u:secret@pypi.example/simple")),
    proxies=(("https_proxy", "http://proxy:3128"), ("no_proxy", "corp.example")),
    resolv_conf=b"nameserver 192.0.2.1\n",
)


def test_a_vpc_machine_has_its_hostname_and_no_resolver(make_spec):
    files = seed_files.files(make_spec(), HOST)
    assert files["etc/hostname"].content == b"ip-10-42-1-10\n"
    assert b"10.42.1.10 ip-10-42-1-10.ec2.internal ip-10-42-1-10\n" in files["etc/hosts"].content
    assert files["etc/resolv.conf"].content == b""


def test_a_vpc_machine_has_no_secret_of_the_host(make_spec):
    everything = b"".join(file.content for file in seed_files.files(make_spec(), HOST).values())
    assert b"secret" not in everything
    assert b"proxy" not in everything


def test_secrets_of_a_builder_are_readable_by_root_only(make_builder):
    files = seed_files.files(make_builder(user_data=b"#!/bin/sh\n"), HOST)
    for name, file in files.items():
        if b"secret" in file.content or name.endswith("user-data"):
            assert file.mode == 0o600, name


def test_a_builder_has_its_user_data_in_a_nocloud_seed(make_builder):
    files = seed_files.files(make_builder(user_data=b"#!/bin/sh\n\xff"), HOST)
    assert files["var/lib/cloud/seed/nocloud/user-data"].content == b"#!/bin/sh\n\xff"
    assert b"instance-id: i-0123456789abcdef0" in (
        files["var/lib/cloud/seed/nocloud/meta-data"].content
    )
    assert b"NoCloud" in files["etc/cloud/cloud.cfg.d/95-toolkit-builder.cfg"].content


def test_the_metadata_service_and_the_endpoint_bypass_the_proxy(make_builder):
    environment = seed_files.environment(make_builder(), HOST)
    assert environment["no_proxy"] == "corp.example,localhost,127.0.0.1,169.254.169.254"
    assert environment["https_proxy"] == "http://proxy:3128"


def test_hostile_environment_values_are_quoted_for_systemd(make_spec):
    spec = make_spec(environment={"A": 'x "y" %h \\', "B": "1"})
    text = seed_files.files(spec, HOST)[
        "etc/systemd/system.conf.d/50-toolkit.conf"
    ].content.decode()
    assert text == '[Manager]\nDefaultEnvironment="A=x \\"y\\" %%h \\\\" "B=1"\n'


def test_the_seed_layer_is_written_anew_with_the_modes_of_a_root_tree(make_builder, tmp_path):
    layer = tmp_path / "seed"
    layer.mkdir()
    (layer / "stale").touch()
    seed_files.write(layer, seed_files.files(make_builder(), HOST))
    assert not (layer / "stale").exists()
    assert {stat.S_IMODE(path.stat().st_mode) for path in layer.rglob("*") if path.is_dir()} == {
        0o755
    }
    assert stat.S_IMODE(layer.stat().st_mode) == 0o755
    assert stat.S_IMODE((layer / "etc/pip.conf").stat().st_mode) == 0o600
