"""TRES text is read by whole names, in each of Slurm's units."""

import pytest

from toolkit.accounting.tres import Tres


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Tres()),
        ("billing=4,cpu=4,mem=15000M,node=1", Tres(4, 15000, 0)),
        (
            "billing=896,cpu=96,gres/gpu:a100=8,gres/gpu=8,mem=786432M,node=2",
            Tres(96, 786432, 8),
        ),
        ("cpu=1,gres/gpu:a100=2,gres/gpu:t4=1,mem=1.50T", Tres(1, 1572864, 3)),
        ("cpu=2,mem=512K", Tres(2, 0, 0)),
        ("cpu=2,mem=4G,gres/gpumem=3", Tres(2, 4096, 0)),
        (f"cpu={'9' * 5000},mem={'9' * 5000}M,gres/gpu={'9' * 5000}", Tres()),
    ],
)
def test_alloc_tres_text_is_parsed(text, expected):
    assert Tres.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "billing=4,cpu=4,mem=15000M,node=1",
        "billing=896,cpu=96,gres/gpu:a100=8,gres/gpu=8,mem=786432M,node=2",
        "cpu=1,mem=1.50T",
        "cpu=2,energy=18446744073709551614,gres/gpumem=x,license/a:b=1",
        "bb/datawarp=1.5T",
    ],
)
def test_text_of_slurm_is_readable(text):
    assert Tres.is_readable(text)


@pytest.mark.parametrize(
    "text",
    [
        "cp",
        "cpu",
        "cpu=",
        "cpu=-4",
        "cpu=1K",
        "cpu=1e999",
        "cpu=\uff11",
        f"cpu={'9' * 5000}",
        "mem=15000X",
        "mem=1.M",
        "cpu=4,mem=NaN",
        "cpu=4,gres/gpu=x",
        "cpu=4,gres/gpu:a100=x,gres/gpu=1",
        "cpu=4,,node=1",
        "cpu=4,",
        "cpu=4,=1",
    ],
)
def test_an_amount_that_is_none_makes_the_text_unreadable(text):
    assert not Tres.is_readable(text)
