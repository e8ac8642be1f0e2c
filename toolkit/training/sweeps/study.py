"""Connect to a sweep's trials in Optuna's storage.

The storage is on the head node, or at TOOLKIT_SWEEP_STORAGE. Nodes have no access to the head's
database (ADR 0009), so they use Optuna's own gRPC proxy in front of it. Any other address is a URL
that Optuna knows, such as sqlite:///sweep.db.
"""

import os
import re
import warnings
from collections.abc import Mapping
from typing import Any, Literal

from toolkit.training.errors import NoStorage
from toolkit.training.io.cluster_info import site_facts

Direction = Literal["minimize", "maximize"]

_PROXY = re.compile(r"grpc://([A-Za-z0-9.-]+):(\d{1,5})")
_READY_SECONDS = 30.0


def address(environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the storage.

    Raises NoStorage when the cluster has none.
    """
    url = environment.get("TOOLKIT_SWEEP_STORAGE") or cluster_address(environment)
    if not url:
        raise NoStorage(
            "there is no storage for sweeps: set TOOLKIT_SWEEP_STORAGE, or mlflow in cluster.yaml"
        )
    return url


def cluster_address(environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the storage on the head node, or ""."""
    return str(site_facts(environment).get("sweep_storage") or "")


def connect(url: str) -> Any:
    """Return an Optuna storage.

    Raises NoStorage when a proxy doesn't answer for 30 s.
    """
    from optuna import storages

    proxy = _PROXY.fullmatch(url)
    if proxy is None:
        return storages.get_storage(url)
    _silence_warning()
    proxy_storage = storages.GrpcStorageProxy(host=proxy[1], port=int(proxy[2]))
    try:
        proxy_storage.wait_server_ready(timeout=_READY_SECONDS)
    except ConnectionError as error:
        raise NoStorage(f"{url} does not answer") from error
    return proxy_storage


def open_study(storage: Any, name: str, direction: Direction) -> Any:
    """Return the study of that name, made if it is missing.

    Several tasks may do so at once.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=storage, study_name=name, direction=direction, load_if_exists=True
    )


def _silence_warning() -> None:
    """Silence the proxy's warning that it is experimental.

    It would be in every task's log; ADR 0012 has weighed that.
    """
    from optuna.exceptions import ExperimentalWarning

    warnings.filterwarnings("ignore", category=ExperimentalWarning)
