"""Progress of a playbook, read from ansible-playbook's output."""

from __future__ import annotations

from slurmplugins.head import playbook
from slurmplugins.head.playbook import Progress
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock
from tests.fakes.cloud import FakeStore

LISTING = """
playbook: site.yml

  play #1 (all): Head node	TAGS: []
    tasks:
      base : Install packages	TAGS: []
      base : Write motd	TAGS: []
      slurmctld : Start	TAGS: []
"""
OUTPUT = """
PLAY [Head node] ***************

TASK [base : Install packages] ***
changed: [localhost]

TASK [base : Write motd] ***
ok: [localhost]
""".splitlines(keepends=True)


def fed(*lines: str) -> Progress:
    progress = Progress()
    progress.count_tasks(LISTING)
    for line in lines:
        progress.read_line(line)
    return progress


def test_it_knows_how_far_it_is():
    progress = fed(*OUTPUT)
    assert (progress.tasks_done, progress.task_count) == (1, 3)
    assert (progress.phase, progress.task) == ("base", "Write motd")


def test_a_good_end_is_whole():
    progress = fed(*OUTPUT)
    progress.finish(0)
    assert (progress.state, progress.tasks_done, progress.error) == ("ok", 3, "")


def test_a_failed_task_says_what_and_why():
    line = (
        'fatal: [localhost]: FAILED! => {"changed": false, "msg": "no package", "stderr": "E: x"}'
    )
    progress = fed(*OUTPUT, line)
    progress.finish(2)
    assert progress.state == "failed"
    assert progress.error == "Write motd: no package; E: x"


def test_the_result_of_a_task_says_more_than_the_line_before_it():
    progress = fed(*OUTPUT, "[ERROR]: Task failed", 'fatal: [localhost]: FAILED! => {"msg": "why"}')
    progress.finish(2)
    assert progress.error == "Write motd: why"


def test_an_ignored_failure_is_none():
    progress = fed(
        *OUTPUT,
        "[ERROR]: Task failed",
        'fatal: [localhost]: FAILED! => {"msg": "x"}',
        "...ignoring",
    )
    assert progress.error == ""


def test_a_playbook_that_can_not_be_read_says_so():
    progress = fed("ERROR! the role 'base' was not found")
    progress.finish(1)
    assert "was not found" in progress.error


def test_a_silent_failure_points_at_the_log():
    progress = fed()
    progress.finish(4)
    assert "4" in progress.error


def test_status_is_written_at_most_once_a_second_and_at_the_end(capsys):
    clock, store = FakeClock(), FakeStore()
    log = Log(lambda _: None, clock)
    reporter = playbook.Reporter(store, "status/head.json", "abc", clock, log)  # type: ignore[arg-type]
    progress = Progress()
    playbook.follow_output(OUTPUT, progress, reporter)
    assert store.puts == 1
    clock.advance(1.5)
    reporter.write_progress(progress)
    reporter.write_progress(progress, force=True)
    assert store.puts == 3
    status = store.objects["status/head.json"]
    assert (status["state"], status["bundle"], status["phase"]) == ("running", "abc", "base")


def test_a_store_that_is_down_does_not_stop_the_playbook(capsys):
    clock, store = FakeClock(), FakeStore()
    store.broken = True
    lines: list[str] = []
    reporter = playbook.Reporter(store, "s.json", "", clock, Log(lines.append, clock))  # type: ignore[arg-type]
    playbook.follow_output(OUTPUT, Progress(), reporter)
    assert "status" in lines[0]
