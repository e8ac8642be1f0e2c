"""A user changes only her own runs and sweeps, from a job and on the head."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.slurm.training_job import ON_FARM, PYTHON

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
ON_ONE = (*ON_FARM, "--nodes=1", "--time=20")

CONNECT = """
import json, os, sys, warnings
os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "3"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
warnings.filterwarnings("ignore")
import grpc
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from toolkit.training.io.cluster_info import site_facts
from toolkit.training.sweeps import study

mlflow = MlflowClient(site_facts()["mlflow_tracking_uri"])
sweeps = study.connect(study.address())

def answer(change):
    try:
        change()
    except MlflowException as error:
        return str(error)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return "done"
"""
MAKE = f"""{CONNECT}
run = mlflow.create_run("0", tags={{"mlflow.user": "somebody", "toolkit.job_id": "987654321"}})
mlflow.log_metric(run.info.run_id, "loss", 0.5)
made = study.open_study(sweeps, sys.argv[1], "minimize")
print(json.dumps([run.info.run_id, made.ask()._trial_id]))
"""
CHANGE = f"""{CONNECT}
run, trial, sweep = json.loads(sys.argv[1])
forged = {{"mlflow.user": "ada"}}
print(json.dumps({{
    "metric": answer(lambda: mlflow.log_metric(run, "loss", 0.0)),
    "name": answer(lambda: mlflow.set_tag(run, "mlflow.user", "grace")),
    "trial": answer(lambda: sweeps.set_trial_user_attr(trial, "a", 1)),
    "join": answer(lambda: study.open_study(sweeps, sweep, "minimize").ask()),
    "new": answer(lambda: print(mlflow.create_run("0", tags=forged).info.user_id)),
    "delete": answer(lambda: mlflow.delete_run(run)),
}}))
"""
OF_THE_OWNER = ("metric", "name", "trial", "join", "delete")
ONLY = "only its owner can change it"


def on_node(user, *argv):
    """Return the words that run a command in a user's job."""
    home = f"/shared/home/{user}"
    environment = ("env", f"HOME={home}")
    return (*on_head(user), *environment, "srun", *ON_ONE, f"--chdir={home}", *argv)


def on_head(user, *argv):
    return ("runuser", "-u", user, "--", *argv)


def test_a_user_changes_her_own_runs_and_sweeps_and_is_refused_anothers_in_words(cluster):
    sweep = f"owned-{uuid.uuid4().hex[:8]}"
    run, trial = json.loads(cluster.run(*on_node("ada", *PYTHON, "-c", MAKE, sweep), timeout=900))
    change = (*PYTHON, "-c", CHANGE, json.dumps([run, trial, sweep]))
    for place in (on_node, on_head):
        user, text = cluster.run(*place("grace", *change), timeout=900).splitlines()[-2:]
        answers = json.loads(text)
        for name in OF_THE_OWNER:
            assert "PERMISSION_DENIED" in answers[name], answers
            assert f"belongs to ada, and you are grace: {ONLY}" in answers[name]
        assert (user, answers["new"]) == ("grace", "done")  # not ada, whom the client named
    for nobody in ("root", "nobody"):
        answers = json.loads(cluster.run(*on_head(nobody, *change)).splitlines()[-1])
        assert all(f"{nobody} is no user of the cluster" in words for words in answers.values())
    user, text = cluster.run(*on_node("ada", *change), timeout=900).splitlines()[-2:]
    answers = json.loads(text)
    assert "the tags mlflow.user" in answers.pop("name")
    assert (user, set(answers.values())) == ("ada", {"done"}), answers


def test_the_head_itself_ends_runs_and_trials_of_everybody(cluster):
    """Tag and settle as the toolkit's own commands do."""
    sweep = f"owned-{uuid.uuid4().hex[:8]}"
    cluster.run(*on_head("ada", *PYTHON, "-c", MAKE, sweep))
    status = json.loads(cluster.toolkit("sweep", "status", sweep, "--settle", "--json").stdout)
    assert status["trials"] == 1
    tags = json.dumps({"987654321": {"a": "b"}})
    tagged = cluster.run("/opt/slurm-toolkit/bin/slurm-runs", "tag", tags)
    assert json.loads(tagged)
