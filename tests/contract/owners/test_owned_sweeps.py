"""A user changes only her own sweeps in Optuna's storage.

The head's real gRPC service over SQLite, with real connections of several uids.
"""

from contextlib import suppress
from pathlib import Path

import grpc
import optuna
import pytest

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

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
RUNNING, COMPLETE = optuna.trial.TrialState.RUNNING, optuna.trial.TrialState.COMPLETE
UNIFORM = optuna.distributions.FloatDistribution(0.0, 1.0)
MINIMIZE = [optuna.study.StudyDirection.MINIMIZE]


class Users:
    """Clients of the storage."""

    def __init__(self, port) -> None:
        self.port = port

    def call(self, uid, method, *arguments):
        """Call a method of Optuna's storage as that user.

        gRPC shares a connection among the clients of an address, so each call has a client.
        """
        with acting_as(uid):
            client = optuna.storages.GrpcStorageProxy(host="127.0.0.1", port=self.port)
            try:
                return getattr(client, method)(*arguments)
            finally:
                client.close()

    def refused(self, uid, method, *arguments):
        """Return the words of a refusal."""
        with pytest.raises(grpc.RpcError) as error:
            self.call(uid, method, *arguments)
        assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED
        return error.value.details()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("optuna")
    port = free_port()
    url = f"sqlite:///{folder}/sweep.db"
    arguments = (url, "127.0.0.1", port, SYSTEM_NAME)
    with serving("optuna", *arguments, port=port, log=folder / "log") as process:
        yield port, process


@pytest.fixture
def users(server):
    return Users(server[0])


def a_sweep(users, name, uid=ADA):
    study = users.call(uid, "create_new_study", MINIMIZE, name)
    return study, users.call(uid, "create_new_trial", study)


def changes(study, trial):
    """Return every change of a sweep that a client can ask for."""
    return [
        ("create_new_trial", study),
        ("set_study_user_attr", study, "a", 1),
        ("set_study_system_attr", study, "a", 1),
        ("set_trial_param", trial, "x", 0.5, UNIFORM),
        ("set_trial_intermediate_value", trial, 1, 0.5),
        ("set_trial_user_attr", trial, "a", 1),
        ("set_trial_system_attr", trial, "a", 1),
        ("set_trial_state_values", trial, COMPLETE, [0.5]),
        ("delete_study", study),
    ]


def test_a_user_changes_her_own_sweep_and_no_other(users):
    study, trial = a_sweep(users, "hers")
    words = "sweep hers belongs to ada, and you are ben: only its owner can change it"
    for call in changes(study, trial):
        assert users.refused(BEN, *call) == words, call
    assert users.call(BEN, "get_trial", trial).state == RUNNING
    for call in changes(study, trial):
        users.call(ADA, *call)


def test_a_name_that_is_taken_stays_the_first_users(users):
    study, _ = a_sweep(users, "taken")
    with pytest.raises(optuna.exceptions.DuplicatedStudyError):
        users.call(BEN, "create_new_study", MINIMIZE, "taken")
    assert users.call(BEN, "get_study_id_from_name", "taken") == study
    users.refused(BEN, "create_new_trial", study)


def test_nobody_writes_the_owner_of_a_sweep(users):
    study, _ = a_sweep(users, "bens", BEN)
    words = users.refused(BEN, "set_study_system_attr", study, "toolkit:owner", "ada")
    assert words == "toolkit:owner is the server's"
    assert users.call(ADA, "get_study_system_attrs", study)["toolkit:owner"] == "ben"


def test_the_storages_own_user_changes_every_sweep_and_root_none(users):
    _, trial = a_sweep(users, "ends")
    words = users.refused(ROOT, "set_trial_state_values", trial, COMPLETE, [1.0])
    assert words == "root is no user of the cluster and changes no sweep"
    users.refused(ROOT, "create_new_study", MINIMIZE, "of root")
    users.call(SYSTEM, "set_trial_state_values", trial, COMPLETE, [1.0])
    assert users.call(ROOT, "get_trial", trial).value == 1.0


def test_what_is_not_there_is_not_found(users):
    for call in (("create_new_trial", 9999), ("set_trial_user_attr", 9999, "a", 1)):
        with pytest.raises(KeyError):
            users.call(BEN, *call)


def service_port(process):
    """Return the port on which the service waits for its relay."""
    inodes = set()
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the service closed this file meanwhile
            inodes.add(str(link.readlink()).removeprefix("socket:[").rstrip("]"))
    ports = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.append(int(fields[1].rpartition(":")[2], 16))
    return ports


def test_behind_the_relay_nobody_writes(users, server):
    """Refuse whoever goes to the service itself, past the relay."""
    port, process = server
    study, _ = a_sweep(users, "behind")
    (other,) = (one for one in service_port(process) if one != port)
    past = Users(other)
    with pytest.raises(grpc.RpcError) as error:
        past.call(ADA, "create_new_trial", study)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "can't learn at the moment" in error.value.details()


def test_plain_optuna_optimizes(users):
    """Optimize as a researcher's script does."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with acting_as(ADA):
        storage = optuna.storages.GrpcStorageProxy(host="127.0.0.1", port=users.port)
        study = optuna.create_study(storage=storage, study_name="plain", load_if_exists=True)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=5)
        assert len(study.trials) == 5
        storage.close()
