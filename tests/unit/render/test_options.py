"""The options of each Slurm version, and versions themselves."""

import pytest

from toolkit.render import options
from toolkit.render.versions import NEWEST, OLDEST, SlurmVersion


@pytest.mark.parametrize(
    ("text", "series"), [("24.11", "24.11"), ("24.11.5", "24.11"), ("26.05.1-rc1", "26.05")]
)
def test_a_version_is_its_series(text, series):
    assert str(SlurmVersion.parse(text)) == series


@pytest.mark.parametrize(
    "text", ["", "24", "24.1", "24.11 x", "v24.11", "\N{ARABIC-INDIC DIGIT TWO}4.11"]
)
def test_a_malformed_version_is_refused(text):
    with pytest.raises(ValueError, match="not a Slurm version"):
        SlurmVersion.parse(text)


def test_versions_are_ordered_by_year_then_month():
    assert SlurmVersion(23, 11) < SlurmVersion(24, 5) < SlurmVersion(24, 11)


def test_no_option_is_listed_twice():
    names = [option.name.lower() for option in options.TABLE]
    assert len(names) == len(set(names))


def test_an_option_removed_before_the_oldest_version_is_never_supported():
    removed_options = [option for option in options.TABLE if option.removed == OLDEST]
    assert removed_options
    assert not any(
        option.supported_by(version) for option in removed_options for version in (OLDEST, NEWEST)
    )


def test_an_unlisted_option_is_supported_in_every_version():
    assert options.unsupported_reason("KillWait", "30", OLDEST) is None


def test_a_parameter_is_found_without_its_value():
    option = options.find("schedulerparameters", "requeue_delay=30")
    assert option is not None
    assert option.since == SlurmVersion(25, 11)


@pytest.mark.parametrize("version", ["23.02", "26.11"])
def test_an_unsupported_version_is_refused(version):
    with pytest.raises(ValueError, match="not supported"):
        options.check_range(SlurmVersion.parse(version))
