"""The credential broker: who gets credentials, how often AWS is asked, what is said without."""

from __future__ import annotations

import threading

import pytest

from slurmplugins.errors import CloudUnreachable, Denied
from slurmplugins.model.credentials import Credentials
from slurmplugins.node import credential_broker, job_tokens
from slurmplugins.node.broker_server import PORT
from slurmplugins.node.credential_broker import (
    FAILURE_SECONDS,
    PATH,
    RENEW_SECONDS,
    SPARE_SECONDS,
)
from tests.fakes.credential_broker import ADA, BEN, Stage


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


def test_a_job_gets_credentials_of_its_own_session(stage):
    answer = stage.ask()
    assert answer.status == 200
    assert answer.body["SecretAccessKey"] == "secret of ada"
    assert set(answer.body) == {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"}
    assert stage.calls == [ADA]


def test_each_job_gets_its_own_credentials(stage):
    assert stage.ask(8).body["SecretAccessKey"] == "secret of ben"
    assert stage.ask(7).body["SecretAccessKey"] == "secret of ada"


@pytest.mark.parametrize("token", ["", "7", "7." + "0" * 64])
def test_nobody_gets_credentials_without_a_jobs_token(stage, token):
    answer = stage.broker.answer(PATH, token)
    assert answer.status == 403
    assert "no job on this node has this token" in answer.body["message"]
    assert stage.calls == []


def test_another_path_has_nothing(stage):
    assert stage.broker.answer("/", stage.token()).status == 404


def test_the_credentials_of_a_job_that_ended_are_not_handed_out_again(stage):
    token = stage.token()
    stage.ask()
    job_tokens.revoke(stage.jobs, 7)
    assert stage.broker.answer(PATH, token).status == 403


def test_one_session_serves_all_of_a_jobs_processes_until_half_of_its_life(stage):
    stage.ask()
    stage.clock.advance(3600 - RENEW_SECONDS)
    assert stage.ask().body["AccessKeyId"] == "ASIA1"
    stage.clock.advance(1)
    assert stage.ask().body["AccessKeyId"] == "ASIA2"


def test_credentials_that_are_handed_out_last_longer_than_sdks_wait_before_they_ask_anew(stage):
    """Botocore asks for new ones from 15 minutes before the end."""
    assert RENEW_SECONDS > 15 * 60


def test_while_aws_fails_the_old_credentials_are_good_until_their_end(stage):
    stage.ask()
    stage.fault = CloudUnreachable("no answer", code="Unreachable")
    stage.clock.advance(3000)
    assert stage.ask().body["AccessKeyId"] == "ASIA1"
    stage.clock.advance(600)
    answer = stage.ask()
    assert answer.status == 502
    assert "no answer" in answer.body["message"]


def test_a_refusal_of_aws_is_told_to_the_job_and_asked_again_only_after_a_pause(stage):
    stage.fault = Denied("not authorized to perform: sts:AssumeRole", code="AccessDenied")
    for _ in range(3):
        assert "not authorized" in stage.ask().body["message"]
    assert len(stage.calls) == 1
    stage.fault = None
    stage.clock.advance(FAILURE_SECONDS)
    assert stage.ask().status == 200


def test_the_pause_after_a_failure_begins_when_the_call_ends(stage):
    """A call may take 45 s, which is longer than the pause."""
    stage.fault, stage.call_seconds = CloudUnreachable("no answer", code="Unreachable"), 45.0
    for _ in range(3):
        assert stage.ask().status == 502
    assert len(stage.calls) == 1
    stage.clock.advance(FAILURE_SECONDS)
    stage.ask()
    assert len(stage.calls) == 2


def test_credentials_that_last_are_handed_out_while_a_call_for_new_ones_stalls(stage):
    stage.ask()
    stage.clock.advance(3600 - SPARE_SECONDS)
    with stage.stalled_call():
        assert stage.ask().body["AccessKeyId"] == "ASIA1"
    assert len(stage.calls) == 2
    assert stage.ask().body["AccessKeyId"] == "ASIA2"


@pytest.mark.parametrize("left", [0, SPARE_SECONDS - 1])
def test_a_request_waits_a_while_for_a_stalled_call_of_another_and_makes_none(
    stage, monkeypatch, left
):
    monkeypatch.setattr(credential_broker, "WAIT_SECONDS", 0.01)
    if left:
        stage.ask()
        stage.clock.advance(3600 - left)
    calls = len(stage.calls)
    with stage.stalled_call():
        answers = [stage.ask() for _ in range(3)]
    assert len(stage.calls) == calls + 1
    if left:
        assert {answer.body["AccessKeyId"] for answer in answers} == {"ASIA1"}
    else:
        assert {answer.status for answer in answers} == {502}
        assert "AWS has not answered yet" in answers[0].body["message"]


def test_a_stalled_call_for_one_job_keeps_no_other_job_waiting(stage):
    with stage.stalled_call(7):
        assert stage.ask(8).body["SecretAccessKey"] == "secret of ben"


def test_a_fault_of_the_broker_itself_leaves_the_next_request_its_call(stage):
    stage.fault = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        stage.ask()
    stage.fault = None
    stage.clock.advance(FAILURE_SECONDS)
    assert stage.ask().status == 200


def test_many_processes_at_once_cost_one_call(stage):
    threads = [threading.Thread(target=stage.ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stage.calls == [ADA]


def test_no_user_can_take_the_brokers_port():
    """The kernel keeps ports below 1024 for root (ip_unprivileged_port_start)."""
    assert PORT < 1024


def test_ended_jobs_are_forgotten(stage):
    stage.ask(7)
    job_tokens.revoke(stage.jobs, 7)
    stage.ask(8)
    assert set(stage.broker._slots) == {BEN}


def test_no_log_line_has_a_secret(stage):
    stage.ask()
    stage.broker.answer(PATH, "7." + "0" * 64)
    text = "".join(stage.lines)
    assert "credentials_issued" in text
    assert "credentials_refused" in text
    for secret in (stage.token(), "secret of ada", "0" * 64, "session"):
        assert secret not in text


def test_credentials_print_no_secret():
    assert "hidden" not in repr(Credentials("ASIA1", "hidden", "hidden", 0.0))
