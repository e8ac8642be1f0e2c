"""Optuna's storage service, in which a user changes only what is hers.

A study belongs to the user who made it. The server writes her name into the study's system
attributes. Trials belong to their study. Everybody reads.
"""

import threading
from collections.abc import Mapping
from functools import partial

import grpc
from optuna.storages._rdb.models import TrialModel
from sqlalchemy import select

from slurmplugins.head.callers import Caller, Connection

OWNER = "toolkit:owner"
OF_STUDY = {"DeleteStudy", "SetStudyUserAttribute", "SetStudySystemAttribute", "CreateNewTrial"}
OF_TRIAL = {
    "SetTrialParameter", "SetTrialStateValues", "SetTrialIntermediateValue",
    "SetTrialUserAttribute", "SetTrialSystemAttribute",
}  # fmt: skip


class OwnedStudies(grpc.ServerInterceptor):
    """An interceptor that looks at the caller before each write.

    `connections` has each caller's connection, by the port from which the relay forwards it.
    """

    def __init__(self, storage, connections: Mapping[int, Connection]) -> None:
        self._storage, self._connections = storage, connections
        self._lock = threading.Lock()
        self._studies: dict[int, int] = {}  # by trial
        self._owners: dict[int, str] = {}  # by study

    def intercept_service(self, continuation, details):
        handler = continuation(details)
        method = details.method.rpartition("/")[2]
        if handler is None or method.startswith("Get"):
            return handler
        return grpc.unary_unary_rpc_method_handler(
            partial(self._write, method, handler.unary_unary),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _write(self, method: str, behaviour, request, context):
        caller = self._caller(context)
        if method == "CreateNewStudy":
            with self._lock:  # until the study has its owner, nobody else writes to it
                reply = behaviour(request, context)
                self._storage.set_study_system_attr(reply.study_id, OWNER, caller.name)
            return reply
        if not caller.is_system:
            self._check(method, request, context, caller)
        if method == "DeleteStudy":
            with self._lock:  # a database may use the numbers again
                self._studies.clear()
                self._owners.clear()
        return behaviour(request, context)

    def _caller(self, context) -> Caller:
        port = int(context.peer().rpartition(":")[2])
        connection = self._connections.get(port)
        caller = connection.caller() if connection else None
        if caller is None or not context.is_active():
            text = "the head can't learn at the moment whose connection this is: try again"
            context.abort(grpc.StatusCode.UNAVAILABLE, text)
        if not (caller.is_user or caller.is_system):
            text = f"{caller.name} is no user of the cluster and changes no sweep"
            context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        return caller

    def _check(self, method: str, request, context, caller: Caller) -> None:
        """End the call unless the caller owns the study that it changes."""
        try:
            if method in OF_STUDY:
                study = request.study_id
            elif method in OF_TRIAL:
                study = self._study_of(request.trial_id)
            else:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{method} is not known here")
            owner = self._owner(study, caller)
            name = self._storage.get_study_name_from_id(study)
        except KeyError as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        if owner != caller.name:
            text = (
                f"sweep {name} belongs to {owner or 'nobody'}, and you are {caller.name}: "
                "only its owner can change it"
            )
            context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        if method == "SetStudySystemAttribute" and request.key == OWNER:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{OWNER} is the server's")

    def _owner(self, study: int, caller: Caller) -> str | None:
        """Return a study's owner.

        The server may die between a study's beginning and its owner's name. Such a study has no
        trial, and belongs to the first who writes to it.
        """
        with self._lock:
            if study not in self._owners:
                owner = self._storage.get_study_system_attrs(study).get(OWNER)
                if owner is None and not self._storage.get_all_trials(study, deepcopy=False):
                    self._storage.set_study_system_attr(study, OWNER, caller.name)
                    owner = caller.name
                if owner is None:
                    return None
                self._owners[study] = owner
            return self._owners[study]

    def _study_of(self, trial: int) -> int:
        """Return the number of a trial's study. Raises KeyError."""
        if trial not in self._studies:
            # Optuna's storages tell a trial's study to nobody.
            with self._storage._backend.engine.connect() as database:
                query = select(TrialModel.study_id).where(TrialModel.trial_id == trial)
                study = database.execute(query).scalar()
            if study is None:
                raise KeyError(f"there is no trial {trial}")
            self._studies[trial] = study
        return self._studies[trial]
