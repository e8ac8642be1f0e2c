"""The credential broker on its socket: HTTP on loopback, read by an AWS SDK."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from slurmplugins.node.credential_broker import PATH, BrokerServer
from tests.fakes.credential_broker import Stage


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


@contextmanager
def serving(broker):
    server = BrokerServer(broker, port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def get(url, token):
    request = urllib.request.Request(url, headers={"Authorization": token})  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - loopback
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_broker_answers_on_loopback_by_http(stage):
    with serving(stage.broker) as url:
        assert get(url + PATH, stage.token())[0] == 200
        assert get(url + PATH, "")[0] == 403
        assert url.startswith("http://127.0.0.1:")


def test_an_sdk_gets_its_credentials_by_the_variables_of_the_task_prolog(stage, monkeypatch):
    from botocore.credentials import ContainerProvider

    stage.clock.jump(time.time() - stage.clock.now())
    with serving(stage.broker) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url + PATH)
        file = str(stage.jobs / "7" / "token")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file)
        found = ContainerProvider().load()
    assert found.get_frozen_credentials().secret_key == "secret of ada"
