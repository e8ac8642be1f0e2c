"""The HTML report takes work in proportion to its instances."""

import sys
from dataclasses import replace

from tests.unit.accounting.samples import G5, T0, a_book, an_attempt, an_instance
from tests.unit.finance.samples import html_of
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.report import Key


def a_report(count):
    names = [f"gpu-{number:03}" for number in range(count)]
    instances = [an_instance(f"i-{name}", node=name) for name in names]
    attempts = [
        replace(an_attempt(key), job_id=str(key), user=name, nodes=(name,))
        for key, name in enumerate(names, start=1)
    ]
    return build(
        cluster="demo",
        attempts=attempts,
        instances=instances,
        shapes={instance.instance_id: G5 for instance in instances},
        book=a_book(),
        window=Window(T0 - 3600, T0 + 86_400),
        now=T0 + 86_400,
    )


def calls_to_render(count):
    """Return how many functions a rendered page of so many instances calls."""
    report, calls = a_report(count), 0

    def counted(_frame, event, _argument):
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(counted)
    try:
        html_of(report, [Key.USER])
    finally:
        sys.setprofile(None)
    return calls


def test_twice_the_instances_take_twice_the_calls():
    calls_to_render(1)  # the template is compiled
    small, middle, large = (calls_to_render(count) for count in (40, 80, 160))
    assert large - middle < 2.2 * (middle - small)
