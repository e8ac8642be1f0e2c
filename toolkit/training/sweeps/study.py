"""Where a sweep's trials are: Optuna's storage, on the head node or wherever TOOLKIT_SWEEP_STORAGE
says.

Nodes have no way into the head's database (ADR 0009), so they talk to Optuna's own gRPC proxy in
front of it. Anything else is a URL that Optuna knows, such as sqlite:///sweep.db.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Literal

from toolkit.training.io.cluster_info import site_facts

Direction = Literal["minimize", "maximize"]

_PROXY = re.compile(r"grpc://([A-Za-z0-9.-]+):(\d{1,5})")
_READY_SECONDS = 30.0


class NoStorage(Exception):  # noqa: N818  # says what is the case
    """No storage is named, or it does not answer."""


def address(environment: Mapping[str, str] = os.environ) -> str:
    """The URL of the storage. Raises NoStorage where the cluster has none."""
    named = environment.get("TOOLKIT_SWEEP_STORAGE") or clusters(environment)
    if not named:
        raise NoStorage("no storage for sweeps: set TOOLKIT_SWEEP_STORAGE, or enable mlflow")
    return named


def clusters(environment: Mapping[str, str] = os.environ) -> str:
    """The URL of the storage on the head node; "" where there is none."""
    return str(site_facts(environment).get("sweep_storage") or "")


def connect(url: str) -> Any:
    """An Optuna storage. Raises NoStorage when a proxy doesn't answer for 30 s."""
    from optuna import storages

    proxy = _PROXY.fullmatch(url)
    if proxy is None:
        return storages.get_storage(url)
    _be_quiet()
    found = storages.GrpcStorageProxy(host=proxy[1], port=int(proxy[2]))
    try:
        found.wait_server_ready(timeout=_READY_SECONDS)
    except ConnectionError as error:
        raise NoStorage(f"{url} does not answer") from error
    return found


def study(storage: Any, name: str, direction: Direction) -> Any:
    """The study of that name, made if it isn't there; several tasks may do so at once."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=storage, study_name=name, direction=direction, load_if_exists=True
    )


def _be_quiet() -> None:
    """The proxy warns of being experimental in every task's log; ADR 0012 has weighed that."""
    import warnings

    from optuna.exceptions import ExperimentalWarning

    warnings.filterwarnings("ignore", category=ExperimentalWarning)
