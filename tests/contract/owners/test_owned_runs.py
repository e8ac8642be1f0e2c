"""A user changes only her own runs, experiments and models in MLflow.

MLflow's real server as the head runs it, over SQLite, with real connections of several uids.
"""

import http.client
import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurmplugins.node.ident import PORT, IdentServer
from tests.contract.owners.servers import (
    ADA,
    BEN,
    ROOT,
    SYSTEM,
    SYSTEM_NAME,
    acting_as,
    free_port,
    serving,
)
from tests.patience import PROGRAM_SECONDS

pytestmark = pytest.mark.timeout(1800)
API = "/api/2.0/mlflow"
ONLY = "only its owner can change it"


@dataclass(frozen=True)
class Server:
    port: int
    process: subprocess.Popen
    names: Path
    """Where the server writes which names it does not know."""

    def connect(self, uid, source="127.0.0.1"):
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=60, source_address=(source, 0)
        )
        with acting_as(uid):
            connection.connect()
        return connection

    def call(self, uid, path, body=None, *, method=None, source="127.0.0.1"):
        """Return status and content of the answer to a user's request."""
        connection = self.connect(uid, source)
        content = body if isinstance(body, bytes) else json.dumps(body)
        connection.request(
            method or ("POST" if body is not None else "GET"),
            path if path.startswith("/") else f"{API}/{path}",
            None if body is None else content,
            {"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, json.loads(text) if text.startswith("{") else {"text": text}

    def made(self, uid, path, body):
        status, content = self.call(uid, path, body)
        assert status == 200, content
        return content

    def run_of(self, uid, **more):
        body = {"experiment_id": "0", "start_time": 1, **more}
        return self.made(uid, "runs/create", body)["run"]["info"]["run_id"]

    def tags(self, run_id):
        run = self.call(BEN, f"runs/get?run_id={run_id}")[1]["run"]
        return {tag["key"]: tag["value"] for tag in run["data"].get("tags", [])}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    port, names = free_port(), folder / "names.json"
    with serving(
        "mlflow",
        *("--port", port, "--allowed-hosts", "localhost:*,127.0.0.1:*"),
        *("--system-user", SYSTEM_NAME),
        *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
        *("--artifacts-destination", folder / "artifacts"),
        port=port,
        log=folder / "log",
        names=names,
    ) as process:
        yield Server(port, process, names)


def refused(answer):
    """Return the words of a refusal."""
    status, content = answer
    assert status == 403, answer
    assert content["error_code"] == "PERMISSION_DENIED"
    return content["message"]


MODEL = {"artifact_path": "m", "flavors": {}, "utc_time_created": "2026-01-01", "run_id": "x"}
WRITES = {
    "runs/update": {"status": "KILLED"},
    "runs/log-metric": {"key": "loss", "value": 0.0, "timestamp": 1},
    "runs/log-parameter": {"key": "rate", "value": "1"},
    "runs/set-tag": {"key": "note", "value": "x"},
    "runs/delete-tag": {"key": "note"},
    "runs/log-batch": {"metrics": [{"key": "loss", "value": 0.0, "timestamp": 1}]},
    "runs/log-model": {"model_json": json.dumps(MODEL)},
    "runs/log-inputs": {"datasets": []},
    "runs/delete": {},
    "runs/restore": {},
}


def test_a_user_changes_her_own_run_and_no_other(server):
    run_id = server.run_of(ADA)
    for path, body in WRITES.items():
        words = refused(server.call(BEN, path, {"run_id": run_id, **body}))
        assert words == f"run {run_id} belongs to ada, and you are ben: {ONLY}"
    for path, body in WRITES.items():
        model = {"model_json": json.dumps(MODEL | {"run_id": run_id})} if "model" in path else {}
        status, content = server.call(ADA, path, {"run_id": run_id, **body, **model})
        assert status == 200, (path, content)


def test_everybody_reads_everything(server):
    run_id = server.run_of(ADA)
    for uid in (BEN, ROOT):
        assert server.call(uid, f"runs/get?run_id={run_id}")[0] == 200
        found = server.call(uid, "runs/search", {"experiment_ids": ["0"], "max_results": 1000})[1]
        assert run_id in {run["info"]["run_id"] for run in found["runs"]}
        assert server.call(uid, "/health")[0] == 200
        assert server.call(uid, "experiments/get?experiment_id=0")[0] == 200


def test_a_run_is_its_callers_whatever_name_the_client_writes(server):
    forged = {"user_id": "ada", "tags": [{"key": "mlflow.user", "value": "ada"}] * 2}
    content = server.made(BEN, "runs/create", {"experiment_id": "0", **forged})["run"]
    assert content["info"]["user_id"] == "ben"
    run_id = content["info"]["run_id"]
    assert server.tags(run_id)["mlflow.user"] == "ben"
    tag = {"key": "mlflow.user", "value": "ada"}
    words = "the tags mlflow.user and toolkit.owner are the server's"
    assert refused(server.call(BEN, "runs/set-tag", {"run_id": run_id, **tag})) == words
    assert refused(server.call(BEN, "runs/log-batch", {"run_id": run_id, "tags": [tag]})) == words
    assert refused(server.call(BEN, "runs/delete-tag", {"run_id": run_id, **tag})) == words
    assert server.tags(run_id)["mlflow.user"] == "ben"


def test_other_spellings_of_a_request_do_not_pass(server):
    """Refuse what MLflow's parser takes for the same request."""
    run_id, own = server.run_of(ADA), server.run_of(BEN)
    for body in (
        {"runId": run_id, "key": "a", "value": "b"},
        {"run_uuid": run_id, "key": "a", "value": "b"},
        {"run_uuid": own, "run_id": run_id, "key": "a", "value": "b"},
        json.dumps({"run_id": run_id, "key": "a", "value": "b"}),
    ):
        status, content = server.call(BEN, "runs/set-tag", body)
        assert status in {400, 403}, content  # MLflow's own check takes one spelling
    # With both names MLflow takes run_id: the caller's own run is changed, and no other.
    server.made(BEN, "runs/set-tag", {"run_id": own, "run_uuid": run_id, "key": "a", "value": "b"})
    double = f'{{"run_id": "{own}", "run_id": "{run_id}", "key": "a", "value": "b"}}'.encode()
    refused(server.call(BEN, "runs/set-tag", double))
    refused(server.call(BEN, "/ajax-api/2.0/mlflow/runs/delete", {"run_id": run_id}))
    assert "a" not in server.tags(run_id)


def test_an_experiment_is_its_makers_and_is_deleted_only_without_others_runs(server):
    made = server.made(ADA, "experiments/create", {"name": "hers"})["experiment_id"]
    tag = {"experiment_id": made, "key": "a", "value": "b"}
    words = refused(server.call(BEN, "experiments/set-experiment-tag", tag))
    assert words.startswith("experiment hers belongs to ada, and you are ben")
    refused(server.call(BEN, "experiments/delete", {"experiment_id": made}))
    server.made(ADA, "experiments/set-experiment-tag", tag)
    owner = {"experiment_id": made, "key": "toolkit.owner", "value": "ben"}
    refused(server.call(ADA, "experiments/set-experiment-tag", owner))
    run_id = server.run_of(BEN, experiment_id=made)
    words = refused(server.call(ADA, "experiments/delete", {"experiment_id": made}))
    assert words == f"the experiment has runs of others, such as {run_id} of ben"
    own = server.made(ADA, "experiments/create", {"name": "own"})["experiment_id"]
    server.run_of(ADA, experiment_id=own)
    server.made(ADA, "experiments/delete", {"experiment_id": own})
    refused(server.call(ADA, "experiments/delete", {"experiment_id": "0"}))


def test_artifacts_are_written_to_ones_own_run_alone(server):
    run_id = server.run_of(ADA)
    path = f"/api/2.0/mlflow-artifacts/artifacts/0/{run_id}/artifacts/a.txt"
    up, escaped = path.replace("/0/", "/1/../0/"), path.replace("artifacts/a", "%61rtifacts/a")
    for sent in (path, up, escaped):
        assert server.call(BEN, sent, b"bad", method="PUT")[0] in {400, 403}
    assert "belongs to ada" in refused(server.call(BEN, path, b"bad", method="PUT"))
    assert server.call(ADA, path, b"good", method="PUT")[0] == 200
    assert "belongs to ada" in refused(server.call(BEN, path, b"", method="DELETE"))
    upload = f"/ajax-api/2.0/mlflow/upload-artifact?run_uuid={run_id}&path=a.txt"
    assert "belongs to ada" in refused(server.call(BEN, upload, b"bad"))
    assert server.call(BEN, path)[1]["text"] == "good"
    nowhere = "/api/2.0/mlflow-artifacts/artifacts/elsewhere.txt"
    assert "lies in no run" in refused(server.call(BEN, nowhere, b"bad", method="PUT"))
    assert server.call(ADA, path, b"", method="DELETE")[0] == 200


def test_nobody_points_an_experiment_at_another_place_of_the_bucket(server):
    body = {"name": "elsewhere", "artifact_location": "s3://bucket/ledger"}
    assert "leave out artifact_location" in refused(server.call(BEN, "experiments/create", body))


def test_models_are_their_makers(server):
    run_id = server.run_of(ADA)
    server.made(ADA, "registered-models/create", {"name": "net"})
    source = f"mlflow-artifacts:/0/{run_id}/artifacts/m"
    version = {"name": "net", "source": source, "run_id": run_id}
    refused(server.call(BEN, "model-versions/create", version))
    server.made(ADA, "model-versions/create", version)
    alias = {"name": "net", "alias": "best", "version": "1"}
    assert "belongs to ada" in refused(server.call(BEN, "registered-models/alias", alias))
    server.made(ADA, "registered-models/alias", alias)
    assert "belongs to ada" in refused(
        server.call(BEN, "registered-models/delete", {"name": "net"}, method="DELETE")
    )
    logged = {"experiment_id": "0", "name": "logged", "source_run_id": run_id}
    refused(server.call(BEN, "logged-models", logged))
    model_id = server.made(ADA, "logged-models", logged)["model"]["info"]["model_id"]
    tags = {"tags": [{"key": "a", "value": "b"}]}
    refused(server.call(BEN, f"logged-models/{model_id}/tags", tags, method="PATCH"))
    assert server.call(ADA, f"logged-models/{model_id}/tags", tags, method="PATCH")[0] == 200
    ready = {"model_id": model_id, "status": "LOGGED_MODEL_READY"}
    assert server.call(ADA, f"logged-models/{model_id}", ready, method="PATCH")[0] == 200


def test_what_nobody_has_decided_on_is_the_administrators(server):
    for path, body in (
        ("/ajax-api/3.0/mlflow/demo/generate", {}),
        (f"{API}/webhooks", {"name": "w", "url": "https://example.com", "events": []}),
        ("/ajax-api/2.0/mlflow/runs/create-promptlab-run", {}),
        ("/no/such/interface", {}),
    ):
        assert "administrators" in refused(server.call(BEN, path, body)), path
    gateway = "/gateway/x/mlflow/invocations"
    for path in ("/ajax-api/3.0/mlflow/assistant/config", "/v1/traces", gateway):
        assert server.call(BEN, path, {})[0] in {403, 404, 405}, path


def test_the_heads_own_program_changes_everything_and_root_nothing(server):
    run_id = server.run_of(ADA)
    ended = {"run_id": run_id, "status": "KILLED"}
    words = refused(server.call(ROOT, "runs/update", ended))
    assert words.startswith("root is no user of the cluster and changes nothing in MLflow")
    refused(server.call(ROOT, "runs/create", {"experiment_id": "0"}))
    server.made(SYSTEM, "runs/update", ended)
    tag = {"experiment_id": "0", "key": "a", "value": "b"}
    server.made(SYSTEM, "experiments/set-experiment-tag", tag)


def test_a_connection_of_one_user_stays_hers(server):
    """Decide by the connection, however many requests come on it."""
    run_id = server.run_of(ADA)
    connection = server.connect(BEN)
    headers = {"Content-Type": "application/json", "X-Forwarded-For": "10.0.0.1"}
    body = json.dumps({"run_id": run_id, "key": "a", "value": "b"})
    for _ in range(3):
        connection.request("POST", f"{API}/runs/set-tag", body, headers)
        assert connection.getresponse().read().startswith(b'{"error_code": "PERMISSION_DENIED"')
    connection.close()


def test_a_node_tells_whose_a_connection_is_and_without_it_nothing_is_written(server):
    node = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}.9"
    body = {"experiment_id": "0"}
    status, content = server.call(ADA, "runs/create", body, source=node)
    assert (status, content["error_code"]) == (503, "TEMPORARILY_UNAVAILABLE")
    ident = IdentServer(node, PORT, head="127.0.0.1")
    threading.Thread(target=ident.serve_forever, daemon=True).start()
    try:
        made = server.call(ADA, "runs/create", body, source=node)[1]["run"]["info"]
        assert made["user_id"] == "ada"
        words = refused(server.call(BEN, "runs/delete", {"run_id": made["run_id"]}, source=node))
        assert "belongs to ada" in words
        # A node's system users are nobody: only the head's own programs are the system.
        refused(server.call(SYSTEM, "runs/delete", {"run_id": made["run_id"]}, source=node))
    finally:
        ident.shutdown()
        ident.server_close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the client closes no connection
def test_a_plain_mlflow_client_works_and_says_the_refusal(server, tmp_path, monkeypatch):
    from mlflow.exceptions import RestException
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    # Each host name has a pool of connections of its own, so each user has.
    ada = MlflowClient(f"http://127.0.0.1:{server.port}")
    ben = MlflowClient(f"http://localhost:{server.port}")
    file = tmp_path / "notes.txt"
    file.write_text("notes")
    with acting_as(ADA):
        run = ada.create_run("0", tags={"mlflow.user": "root"})
        ada.log_metric(run.info.run_id, "loss", 0.5)
        ada.log_artifact(run.info.run_id, str(file))
        ada.set_terminated(run.info.run_id)
    with acting_as(BEN):
        assert ben.get_run(run.info.run_id).data.tags["mlflow.user"] == "ada"
        for change in (
            lambda: ben.log_metric(run.info.run_id, "loss", 0.0),
            lambda: ben.delete_run(run.info.run_id),
        ):
            with pytest.raises(RestException, match=r"PERMISSION_DENIED: run \w+ belongs to ada"):
                change()


def test_every_name_in_the_rules_is_one_of_this_mlflow(server):
    """Hold the names of MLflow's views and methods, which no interface promises.

    The server looks: another process would import MLflow again.
    """
    server.process.send_signal(signal.SIGUSR2)
    deadline = time.monotonic() + PROGRAM_SECONDS
    while not server.names.exists():
        assert server.process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert json.loads(server.names.read_text()) == [[], [], []]
