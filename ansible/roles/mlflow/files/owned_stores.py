"""MLflow's stores, in which a user changes only what is hers.

MLflow's server keeps everything through two stores. `OwnedStore` stands before each of them:

- Everybody reads.
- A method in RULES writes, if its rule finds that the caller owns what it changes.
- Any other method is for the head's own programs.

The server writes the owner at creation. A run's owner is its tag `mlflow.user`, which MLflow's page
shows; experiments and models have the tag `toolkit.owner`. No user can change these tags.
"""

import inspect
import re
from contextvars import ContextVar
from functools import lru_cache, partial

from mlflow.entities import ExperimentTag, LoggedModelTag, RunTag, ViewType
from mlflow.entities.model_registry import RegisteredModelTag
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED, TEMPORARILY_UNAVAILABLE

from slurmplugins.head.callers import Caller, Connection

RUN_OWNER = "mlflow.user"
OWNER = "toolkit.owner"
OWNER_TAGS = {RUN_OWNER, OWNER}
READS = (
    "get_", "search_", "list_", "batch_get_", "query_", "calculate_", "filter_", "find_",
    "supports_", "resolve_", "_load_dataset_records",
)  # fmt: skip
WRITES_THAT_GET = {"get_or_create_user_queue"}
KNOWN_OWNERS = 10_000
"""Owners of runs and logged models that a server remembers. They never change."""

connection: ContextVar[Connection] = ContextVar("connection")
"""The connection of the request that is being answered."""


def writer() -> Caller:
    """Return who wants to write.

    Raises MlflowException when nobody knows, or when it is no user of the cluster.
    """
    current = connection.get(None)
    caller = current.caller() if current else None
    if caller is None:
        raise MlflowException(
            "the head can't learn at the moment whose connection this is: try again",
            TEMPORARILY_UNAVAILABLE,
        )
    if not (caller.is_user or caller.is_system):
        raise refusal(
            f"{caller.name} is no user of the cluster and changes nothing in MLflow; "
            "`runuser -u USER` makes the change as its owner"
        )
    return caller


def refusal(text: str) -> MlflowException:
    return MlflowException(text, PERMISSION_DENIED)


def require(caller: Caller, what: str, owner: str | None) -> None:
    """Raise MlflowException unless the caller owns this."""
    if owner != caller.name:
        raise refusal(
            f"{what} belongs to {owner or 'nobody'}, and you are {caller.name}: "
            "only its owner can change it"
        )


class OwnedStore:
    """A store of MLflow that looks at the caller before each write."""

    def __init__(self, store) -> None:
        self._store = store
        self.run_owner = lru_cache(KNOWN_OWNERS)(self._read_run_owner)
        self.model_owner = lru_cache(KNOWN_OWNERS)(self._read_model_owner)

    @property
    def __class__(self):
        """Be an instance of the store's class: MLflow asks which kind of store it has."""
        return type(self._store)

    def __getattr__(self, name: str):
        member = getattr(self._store, name)
        if not callable(member) or (name.startswith(READS) and name not in WRITES_THAT_GET):
            return member
        return partial(self._write, name, member)

    def _write(self, name: str, method, /, *args, **kwargs):
        caller = writer()
        if caller.is_system:
            return method(*args, **kwargs)
        rule = RULES.get(name)
        if rule is None:
            raise refusal(f"{name}: this part of MLflow is for the cluster's administrators")
        call = inspect.signature(method).bind(*args, **kwargs)
        call.apply_defaults()
        rule(self, caller, call.arguments)
        return method(*call.args, **call.kwargs)

    # An exception is not remembered: what has no owner is asked again.

    def _read_run_owner(self, run_id: str) -> str:
        return owner_of(f"run {run_id}", self._store.get_run(run_id).data.tags, RUN_OWNER)

    def _read_model_owner(self, model_id: str) -> str:
        return owner_of(f"model {model_id}", self._store.get_logged_model(model_id).tags, OWNER)


def owner_of(what: str, tags: dict[str, str], tag: str) -> str:
    """Return the owner in these tags. Raises MlflowException when there is none."""
    if not tags.get(tag):
        raise refusal(f"{what} belongs to nobody: only the cluster's administrators can change it")
    return tags[tag]


# -- rules: whether the caller may make a call; some also complete it ------------------------------


def own_run(store, caller, call) -> None:
    run_id = call["run_id"]
    require(caller, f"run {run_id}", store.run_owner(run_id))
    keep_owner(call, caller.name)


def own_model(store, caller, call) -> None:
    model_id = call["model_id"]
    require(caller, f"model {model_id}", store.model_owner(model_id))
    keep_owner(call, caller.name)


def own_experiment(store, caller, call) -> None:
    experiment = store.get_experiment(call["experiment_id"])
    require(caller, f"experiment {experiment.name}", experiment.tags.get(OWNER))
    keep_owner(call, caller.name)


def own_whole_experiment(store, caller, call) -> None:
    """Allow it if no run of another user is in the experiment."""
    own_experiment(store, caller, call)
    query = f"tags.`{RUN_OWNER}` != '{caller.name}'"
    others = store.search_runs([call["experiment_id"]], query, ViewType.ALL, max_results=1)
    for run in others:
        owner = run.data.tags[RUN_OWNER]
        raise refusal(f"the experiment has runs of others, such as {run.info.run_id} of {owner}")


def own_registered_model(store, caller, call) -> None:
    name = call["name"]
    require(caller, f"registered model {name}", store.get_registered_model(name).tags.get(OWNER))
    keep_owner(call, caller.name)


def new_run(store, caller, call) -> None:  # noqa: ARG001 - a rule's shape
    call["user_id"] = caller.name
    call["tags"] = with_owner(call["tags"], RunTag(RUN_OWNER, caller.name))


def new_experiment(store, caller, call) -> None:  # noqa: ARG001 - a rule's shape
    if call["artifact_location"]:
        # The server would write there with its own rights, wherever in the bucket it is.
        raise refusal("the server chooses where artifacts lie: leave out artifact_location")
    call["tags"] = with_owner(call["tags"], ExperimentTag(OWNER, caller.name))


def new_model(store, caller, call) -> None:
    if call["source_run_id"]:
        require(caller, f"run {call['source_run_id']}", store.run_owner(call["source_run_id"]))
    call["tags"] = with_owner(call["tags"], LoggedModelTag(OWNER, caller.name))


def new_registered_model(store, caller, call) -> None:  # noqa: ARG001 - a rule's shape
    call["tags"] = with_owner(call["tags"], RegisteredModelTag(OWNER, caller.name))


def with_owner(tags, owner) -> list:
    """Return the tags with this owner in place of any that the client wrote."""
    return [*(tag for tag in tags or () if tag.key not in OWNER_TAGS), owner]


def keep_owner(call, owner: str) -> None:
    """Raise MlflowException if the call changes or deletes a tag that holds an owner."""
    tags = [*(call.get("tags") or ()), *([call["tag"]] if "tag" in call else ())]
    is_changed = any(tag.key in OWNER_TAGS and tag.value != owner for tag in tags)
    if is_changed or call.get("key") in OWNER_TAGS:
        raise refusal(f"the tags {' and '.join(sorted(OWNER_TAGS))} are the server's")


RULES = {
    **dict.fromkeys(
        (
            "update_run_info", "delete_run", "restore_run", "log_metric", "log_param", "set_tag",
            "delete_tag", "log_batch", "record_logged_model", "log_inputs", "log_outputs",
        ),
        own_run,
    ),
    **dict.fromkeys(
        (
            "finalize_logged_model", "delete_logged_model", "set_logged_model_tags",
            "delete_logged_model_tag", "log_logged_model_params", "set_model_versions_tags",
        ),
        own_model,
    ),
    **dict.fromkeys(("set_experiment_tag", "delete_experiment_tag"), own_experiment),
    **dict.fromkeys(
        ("delete_experiment", "restore_experiment", "rename_experiment"), own_whole_experiment
    ),
    **dict.fromkeys(
        (
            "update_registered_model", "rename_registered_model", "delete_registered_model",
            "set_registered_model_tag", "delete_registered_model_tag", "set_registered_model_alias",
            "delete_registered_model_alias", "create_model_version", "update_model_version",
            "transition_model_version_stage", "delete_model_version", "set_model_version_tag",
            "delete_model_version_tag",
        ),
        own_registered_model,
    ),
    "create_run": new_run,
    "create_experiment": new_experiment,
    "create_logged_model": new_model,
    "create_registered_model": new_registered_model,
}  # fmt: skip

_ARTIFACT = re.compile(
    r"\d+/(?:([0-9a-f]{32})|models/(m-[0-9a-f]{32}))/artifacts(?:/.*)?", re.ASCII
)


def require_artifact(store: OwnedStore, path: str) -> None:
    """Raise MlflowException unless the caller owns the run or model of an artifact."""
    caller = writer()
    if caller.is_system:
        return
    match = _ARTIFACT.fullmatch(path)
    if match is None:
        raise refusal(f"the artifact {path!r} lies in no run and no model")
    run_id, model_id = match.groups()
    if run_id:
        require(caller, f"run {run_id}", store.run_owner(run_id))
    else:
        require(caller, f"model {model_id}", store.model_owner(model_id))
