"""Machines inherit the host's access to packages and no other setting."""

from pathlib import Path

import pytest

from toolkit.local.machines import host_settings

DEB822 = """\
# a comment
Types: deb deb-src
URIs: https://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main contrib

Types: deb
URIs: http://mirror.example/debian-security
Suites:
 bookworm-security
Components: main
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc/apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
    return tmp_path


def test_mirrors_are_read_from_deb822_sources(root):
    (root / "etc/apt/sources.list.d/debian.sources").write_text(DEB822)
    assert host_settings.mirrors(root) == (
        "https://mirror.example/debian",
        "http://mirror.example/debian-security",
    )


def test_mirrors_are_read_from_one_line_sources(root):
    (root / "etc/apt/sources.list").write_text(
        "# deb http://commented.example bookworm main\n"
        "deb [arch=amd64 trusted=no] http://one.example/debian bookworm main\n"
        "deb http://third.example/apt bookworm stable\n"
    )
    assert host_settings.mirrors(root) == (
        "http://one.example/debian",
        host_settings.SECURITY_MIRROR,
    )


def test_a_disabled_source_is_ignored(root):
    (root / "etc/apt/sources.list.d/x.sources").write_text("Enabled: no\n" + DEB822)
    assert host_settings.mirrors(root)[0] == host_settings.DEBIAN_MIRROR


def test_mirrors_of_another_distribution_are_ignored(root):
    (root / "etc/os-release").write_text("ID=ubuntu\nVERSION_CODENAME=noble\n")
    (root / "etc/apt/sources.list").write_text("deb http://ubuntu.example/ubuntu noble main\n")
    assert host_settings.mirrors(root) == (
        host_settings.DEBIAN_MIRROR,
        host_settings.SECURITY_MIRROR,
    )


def test_apt_options_include_transport_and_trust_only():
    dump = """\
Acquire "";
Acquire::http::Proxy "http://proxy.example:3128";
Acquire::https::CaInfo "/etc/ssl/certs/ca-certificates.crt";
Acquire::Check-Valid-Until "false";
Acquire::http::Proxy-Auto-Detect "/usr/local/bin/find-proxy";
Acquire::GzipIndexes "true";
DPkg::Post-Invoke:: "rm -f /var/cache/apt/*.bin || true";
APT::Architecture "amd64";
"""
    assert host_settings.apt_options(dump) == (
        ("Acquire::http::Proxy", "http://proxy.example:3128"),
        ("Acquire::https::CaInfo", "/etc/ssl/certs/ca-certificates.crt"),
        ("Acquire::Check-Valid-Until", "false"),
    )


def test_pips_user_file_and_then_the_environment_win(root, tmp_path):
    home = tmp_path / "home"
    (home / ".config/pip").mkdir(parents=True)
    (root / "etc/pip.conf").write_text(
        "[global]\nindex-url = https://far.example/simple\nno-index = no\n"
    )
    (home / ".config/pip/pip.conf").write_text(
        "[global]\nindex-url = https://near.example/simple\n"
        "extra-index-url =\n  https://a.example\n  https://b.example\n"
        "[list]\nformat = columns\n"
    )
    settings = dict(
        host_settings.pip_settings(root, {"PIP_FIND_LINKS": "/wheels", "PIP_USER": "1"}, home)
    )
    assert settings == {
        "index-url": "https://near.example/simple",
        "extra-index-url": "https://a.example https://b.example",
        "no-index": "no",
        "find-links": "/wheels",
    }


def test_a_malformed_pip_conf_is_ignored(root, tmp_path):
    (root / "etc/pip.conf").write_text("index-url = x\n")
    assert host_settings.pip_settings(root, {}, tmp_path / "home") == ()


def test_the_directories_of_pip_are_bound_once_with_their_parents(tmp_path):
    (tmp_path / "pypi/simple").mkdir(parents=True)
    (tmp_path / "wheels/sub").mkdir(parents=True)
    settings = (
        ("extra-index-url", f"file://{tmp_path}/pypi/simple https://pypi.org/simple"),
        ("find-links", f"{tmp_path}/wheels {tmp_path}/wheels/sub {tmp_path}/absent relative"),
        ("trusted-host", str(tmp_path)),
    )
    assert host_settings.pip_directories(settings) == (tmp_path / "pypi", tmp_path / "wheels")


def test_the_root_directory_is_never_bound(tmp_path):
    assert (
        host_settings.pip_directories((("find-links", "/"), ("index-url", "file:///simple"))) == ()
    )


def test_secrets_and_certificates_are_read_separately(root):
    (root / "etc/apt/auth.conf.d").mkdir()
    (root / "etc/apt/auth.conf").write_text("machine a login u password p\n")
    (root / "etc/apt/auth.conf.d/b.conf").write_text("machine b login u password p\n")
    (root / "usr/local/share/ca-certificates").mkdir(parents=True)
    (root / "usr/local/share/ca-certificates/corp.crt").write_text("CERT")
    (root / "etc/resolv.conf").write_text("nameserver 192.0.2.1\n")
    settings = host_settings.read(
        root, {"https_proxy": "http://p", "no_proxy": "", "X": "1"}, "", root
    )
    assert settings.apt_auth.count(b"machine") == 2
    assert settings.local_cas == {"corp.crt": b"CERT"}
    assert settings.resolv_conf == b"nameserver 192.0.2.1\n"
    assert settings.proxies == (("https_proxy", "http://p"),)


def test_an_empty_host_has_default_settings(tmp_path):
    settings = host_settings.read(tmp_path, {}, "", Path("/nonexistent"))
    assert settings == host_settings.HostSettings()
