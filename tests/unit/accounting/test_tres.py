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
