"""Slurm's versions on the head node and in the images, over a deploy."""

import pytest

from toolkit.deploy.slurm_change import SlurmChange


def change(head, images, *, replaces_head=False):
    return SlurmChange(head, images, replaces_head=replaces_head)


@pytest.mark.parametrize(("head", "images"), [("24.11", "24.11"), ("25.11.2", "25.11.8")])
@pytest.mark.parametrize("replaces_head", [False, True])
def test_another_release_of_the_same_series_is_no_problem(head, images, replaces_head):
    """Let a patch come to the nodes first, within one series."""
    assert change(head, images, replaces_head=replaces_head).problem == ""


def test_a_new_series_needs_a_new_head_node():
    """Never let slurm.conf or nodes be newer than slurmctld."""
    alone = change("24.11", "25.11.8")
    assert alone.problem == (
        "the head node runs Slurm 24.11, and slurm.conf and new nodes would be of Slurm 25.11.8"
    )
    assert "--replace-head" in alone.next_step
    assert change("24.11", "25.11.8", replaces_head=True).problem == ""


@pytest.mark.parametrize("replaces_head", [False, True])
def test_an_earlier_series_is_refused(replaces_head):
    back = change("25.11.8", "24.11", replaces_head=replaces_head)
    assert "no way back" in back.problem
    assert back.next_step == 'set slurm.version to "25.11"'


@pytest.mark.parametrize(
    ("head", "images", "series"),
    [
        ("23.11", "25.11.8", "24.05, 24.11, 25.05, 25.11"),
        ("24.05", "26.05", "24.11, 25.05, 25.11, 26.05"),
    ],
)
def test_a_step_over_more_than_three_series_is_refused(head, images, series):
    far = change(head, images, replaces_head=True)
    assert far.problem.endswith(f"it reads {series}")
    assert "a series in between" in far.next_step


@pytest.mark.parametrize(
    ("head", "images"), [("23.11", "25.05"), ("24.05", "25.11.8"), ("24.11", "26.05")]
)
def test_a_step_over_up_to_three_series_is_possible(head, images):
    assert change(head, images, replaces_head=True).problem == ""


def test_the_plan_names_versions_and_order():
    assert str(change("24.11", "24.11")) == ""
    assert str(change("25.11.2", "25.11.8")) == (
        "~ Slurm: new nodes get 25.11.8; the head node keeps 25.11.2"
    )
    assert str(change("24.11", "25.11.8", replaces_head=True)) == (
        "~ Slurm 24.11 → 25.11.8: slurmdbd, then slurmctld, then nodes by their next instances"
    )
