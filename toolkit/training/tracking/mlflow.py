"""Send a run's records to MLflow, through mlflow-skinny's client."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from toolkit.training.attempt.attempt import Attempt
from toolkit.training.attempt.job_log import log_line
from toolkit.training.errors import RecordRejected
from toolkit.training.io.cluster_info import site_facts
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.tracking.tracker import (
    NoTracker,
    Status,
    Tracker,
    TrackingRecord,
    has_backlog,
    mlflow_run_id,
)

T = TypeVar("T")

_PATIENCE = 60.0
"""Seconds for the last records of a run. The instance is paid for meanwhile."""

_METRICS, _PARAMS, _TAGS = 900, 90, 90  # under MLflow's limits for one call: 1000, 100, 100
_REFUSALS = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"}


class MlflowServer:
    """An MLflow server, as the recorder of one run of one experiment.

    `key` finds the run again if its id was not noted in the run's folder.

    The run has its job's id from its first moment. The server may make the run while its answer
    gets lost. Then the head ends the run by the job's id.
    """

    def __init__(
        self, uri: str, *, experiment: str, name: str, key: str, user: str, job_id: str
    ) -> None:
        # The client's own 7 tries of 120 s each would outlast a spot notice.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        # Its thread changes os.environ, and a request that reads os.environ meanwhile fails.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=uri)
        self._experiment, self._name, self._key = experiment, name, key
        self._tags = {"toolkit.run_key": key, "toolkit.job_id": job_id, "mlflow.user": user}

    def open(self, run_id: str | None) -> str:
        """Continue the run, which is RUNNING again, or make it.

        Returns its id.
        """
        run_id = run_id or self._find()
        if run_id is None:
            experiment = self._experiment_id()
            mlflow_run = self._client.create_run(experiment, tags=self._tags, run_name=self._name)
            return str(mlflow_run.info.run_id)
        self._client.update_run(run_id, status="RUNNING")
        return run_id

    def send(self, run_id: str, records: list[TrackingRecord]) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._send(run_id, records)
        except MlflowException as error:
            if error.error_code in _REFUSALS:
                raise RecordRejected(str(error)) from error
            raise

    def _send(self, run_id: str, records: list[TrackingRecord]) -> None:
        from mlflow.entities import Metric, Param, RunTag

        metrics = [
            Metric(name, value, int(record.at * 1000), record.step)
            for record in records
            for name, value in record.metrics.items()
        ]
        tags: dict[str, str] = {}  # if a batch has two values for one tag, the later counts
        for record in records:
            tags.update(record.tags)
        params = [Param(name, value[:6000]) for r in records for name, value in r.params.items()]
        for items in _chunks(metrics, _METRICS):
            self._client.log_batch(run_id, metrics=items)
        for items in _chunks([RunTag(k, v[:5000]) for k, v in tags.items()], _TAGS):
            self._client.log_batch(run_id, tags=items)
        for items in _chunks(params, _PARAMS):
            self._client.log_batch(run_id, params=items)
        for record in records:
            if record.artifact:
                self._client.log_artifact(run_id, record.artifact)
            if record.status:  # update_run alone would leave the run without an end
                end_time = int(record.at * 1000)
                self._client.set_terminated(run_id, status=record.status, end_time=end_time)

    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment is None:
            try:
                return str(self._client.create_experiment(self._experiment))
            except MlflowException:  # another job made it in between
                experiment = self._client.get_experiment_by_name(self._experiment)
        return str(experiment.experiment_id)

    def _find(self) -> str | None:
        mlflow_runs = self._client.search_runs(
            [self._experiment_id()], f"tags.`toolkit.run_key` = '{self._key}'", max_results=1
        )
        return str(mlflow_runs[0].info.run_id) if mlflow_runs else None


def tracker_for(
    attempt: Attempt,
    run_folder: RunFolder,
    warn: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
) -> Tracker | NoTracker:
    """Return the tracker of MLFLOW_TRACKING_URI, or of the cluster's MLflow.

    Returns NoTracker when neither is set.
    """
    uri = _tracking_uri(environment)
    if not uri:
        return NoTracker()
    return Tracker(
        lambda: _connect(uri, attempt, run_folder, environment),
        run_folder.path,
        warn,
        fence=attempt.fence,
    )


def end_mlflow_run(
    attempt: Attempt, status: Status, at: float, environment: Mapping[str, str] = os.environ
) -> bool:
    """End the attempt's run when no worker is there to do so.

    The records that the workers kept are sent first: no next attempt may come to do so. A run that
    the server does not know is made for them. Returns whether the server has taken everything.
    Importing the client takes seconds, so only ends that nothing waits for come here.
    """
    run_folder = RunFolder(attempt.run_dir)
    if not _tracking_uri(environment):
        return False
    if not (mlflow_run_id(run_folder.path) or has_backlog(run_folder.path)):
        return False
    try:
        tracker = tracker_for(attempt, run_folder, log_line, environment)
        tracker.add(TrackingRecord(at, status=status))
        return tracker.close(_PATIENCE)
    except Exception:  # noqa: BLE001  # no failure of the record may change the job's end
        return False


def _tracking_uri(environment: Mapping[str, str]) -> str:
    stated_uri = environment.get("MLFLOW_TRACKING_URI")
    return str(stated_uri or site_facts(environment).get("mlflow_tracking_uri") or "")


def _connect(
    uri: str, attempt: Attempt, run_folder: RunFolder, environment: Mapping[str, str]
) -> MlflowServer:
    return MlflowServer(
        uri,
        experiment=environment.get("TOOLKIT_EXPERIMENT") or attempt.account or "default",
        name=f"{attempt.job_name} {attempt.job_id}",
        key=run_folder.key,
        user=attempt.user,
        job_id=attempt.job_id,
    )


def as_text(params: Mapping[str, Any]) -> dict[str, str]:
    """Return parameters in the form that MLflow takes."""
    return {str(name): str(value) for name, value in params.items()}


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
