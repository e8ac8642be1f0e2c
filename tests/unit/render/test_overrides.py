"""slurm.settings: a site may change any setting and nothing else."""

import pytest
from hypothesis import given, settings, strategies as st

from toolkit.errors import RenderError
from toolkit.render.overrides import apply_overrides
from toolkit.render.section import SettingsSection
from toolkit.render.versions import SlurmVersion

OURS = (SettingsSection("Ours", (("KillWait", "60"), ("JobRequeue", "1"))),)
NOW = SlurmVersion(24, 11)


def applied(*overrides, version=NOW):
    return apply_overrides(OURS, overrides, version)


def test_an_override_replaces_our_setting_in_any_case():
    """Write one line for the setting.

    Slurm would silently read the last of two.
    """
    assert applied(("killwait", "90")) == (
        SettingsSection("Ours", (("KillWait", "90"), ("JobRequeue", "1"))),
    )


def test_omit_removes_our_setting():
    assert applied(("KillWait", "omit"))[0].rows == (("JobRequeue", "1"),)


def test_other_settings_are_in_a_section_of_their_own():
    assert applied(("MaxArraySize", "5000"))[1].rows == (("MaxArraySize", "5000"),)


@pytest.mark.parametrize(
    "value",
    [
        "1\nSlurmUser=root",
        "1\rSlurmUser=root",
        "1\x00",
        "1 # gone",
        "1 \\",
        "1 SlurmUser=root",
        "1\tSlurmUser=root",
        " 1",
        "1 ",
        "",
    ],
)
def test_a_value_with_more_than_one_word_or_line_is_refused(value):
    with pytest.raises(RenderError, match="one value on one line"):
        applied(("MaxArraySize", value))


@pytest.mark.parametrize("name", ["Include", "NodeName", "partitionname", "Max Size", "A=B", ""])
def test_a_name_that_is_no_global_setting_is_refused(name):
    with pytest.raises(RenderError, match="not a global setting"):
        applied((name, "1"))


def test_a_repeated_setting_is_refused():
    with pytest.raises(RenderError, match="twice"):
        applied(("MaxArraySize", "1"), ("maxarraysize", "2"))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("SlurmctldParameters", "idle_on_node_suspend,cloud_reg_addrs", "default since 23.11"),
        ("SchedulerParameters", "requeue_delay=5", "needs Slurm 25.11"),
        ("MetricsType", "metrics/openmetrics", "needs Slurm 25.11"),
        ("FastSchedule", "2", "config_overrides"),
    ],
)
def test_an_option_that_the_version_lacks_is_refused_with_the_reason(name, value, reason):
    with pytest.raises(RenderError, match=reason):
        applied((name, value))


def test_an_option_is_accepted_by_a_version_that_has_it():
    assert applied(("MetricsType", "metrics/openmetrics"), version=SlurmVersion(25, 11))[1].rows


@settings(deadline=None)
@given(st.text(max_size=60))
def test_an_accepted_value_adds_exactly_one_line(value):
    """Add one line for any accepted text.

    The cases above are examples of this law.
    """
    try:
        sections = applied(("MaxArraySize", value))
    except RenderError:
        return
    rows = [row for section in sections for row in section.rows]
    lines = "".join(f"{name}={text}\n" for name, text in rows)
    assert len(lines.splitlines()) == len(rows)
    assert "#" not in lines
