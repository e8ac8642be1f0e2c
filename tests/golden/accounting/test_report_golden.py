"""Golden tests of the cost report.

`TOOLKIT_GOLDEN=write` accepts a change; read the diff.
"""

import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.accounting.samples import G5, T0, a_book, an_attempt, an_instance
from toolkit.accounting import export, terminal
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.report import Key
from toolkit.accounting.tres import Tres

GOLDEN = Path(__file__).parent / "expected"
KEYS = [Key.ACCOUNT, Key.USER]


def the_demo():
    """Return the report of a run and of a failed job.

    The run has two nodes. One of them loses its instance, and the run is requeued with a new one.
    """
    head = {"pool": "head", "node": "head", "instance_type": "m7i.large", "spot": False}
    instances = [
        an_instance("i-head", **head, launched=T0 - 300, ended=None, end_cause="", tag_price=None),
        an_instance("i-1", launched=T0 + 100, ended=T0 + 300, end_cause="interruption"),
        an_instance("i-2", node="gpu-002", launched=T0 + 100, ended=T0 + 500),
        an_instance("i-3", launched=T0 + 320, ended=T0 + 500),
        an_instance(
            "i-4", node="gpu-003", launched=T0 + 320, ended=T0 + 350, end_cause="resume-failed"
        ),
        an_instance("i-5", node="gpu-004", launched=T0 + 320, ended=None, zone="us-east-1b"),
    ]
    two_nodes = {"nodes": ("gpu-001", "gpu-002"), "tres": Tres(8, 30_000, 2)}
    attempts = [
        an_attempt(
            1, started=T0 + 130, ended=T0 + 290, state="REQUEUED", exit_codes=(85, 0), **two_nodes
        ),
        an_attempt(2, started=T0 + 350, ended=T0 + 460, **two_nodes),
        an_attempt(
            3,
            user="grace",
            account="language",
            job_id="8",
            started=T0 + 350,
            ended=T0 + 460,
            nodes=("gpu-004",),
            state="FAILED",
            exit_codes=(1, 0),
            tres=Tres(2, 8000, 0),
            comments=f"toolkit:checkpoint={T0 + 400}",
        ),
    ]
    return build(
        cluster="demo",
        attempts=attempts,
        instances=instances,
        shapes={instance.instance_id: G5 for instance in instances},
        book=a_book(),
        window=Window(T0 - 300, T0 + 600),
        now=T0 + 600,
    )


def terminal_text(width):
    console = Console(width=width, file=io.StringIO(), record=True, highlight=False)
    console.print(terminal.render(the_demo(), KEYS))
    return "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines())


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("report-80.txt", lambda: terminal_text(80)),
        ("report-100.txt", lambda: terminal_text(100)),
        ("report.csv", lambda: export.as_csv(the_demo())),
        ("report.json", lambda: json.dumps(export.as_json(the_demo(), KEYS), indent=2) + "\n"),
    ],
)
def test_the_report_is_as_reviewed(name, make):
    path = GOLDEN / name
    text = make()
    if os.environ.get("TOOLKIT_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{name} differs; TOOLKIT_GOLDEN=write accepts it"
