"""MLflow's tracking server, in which a user changes only what is hers.

serve.py --port PORT --allowed-hosts HOSTS --backend-store-uri URL --artifacts-destination URL
         [--host ADDRESS] [--system-user NAME]

`mlflow server`, put together from MLflow's own parts:

- Each connection knows whose it is (`slurmplugins.head.callers`). `owned_protocol` sees to that.
- The stores look at the caller before each write (`owned_stores`).
- Of the server's interfaces, those for experiments, runs, models and artifacts are served. MLflow's
  parts for language models (gateway, assistant, scorers, jobs) are not: they write past the stores.
"""

import argparse
import os
from collections.abc import Collection

from fastapi import Depends, FastAPI, Request
from uvicorn.protocols.http.h11_impl import H11Protocol

import owned_stores
from slurmplugins.head.callers import Connection

ARTIFACTS = "mlflow-artifacts:/"
STORES = (
    "_MLFLOW_SERVER_FILE_STORE", "_MLFLOW_SERVER_REGISTRY_STORE", "_MLFLOW_SERVER_ARTIFACT_ROOT",
)  # fmt: skip
SAFE = {"GET", "HEAD", "OPTIONS"}

READS_BY_POST = {
    "_search_experiments", "_search_runs", "_search_logged_models", "_get_latest_versions",
    "_search_traces_v3",
    "_deprecated_search_traces_v2", "_batch_get_trace_infos", "_query_trace_metrics", "_graphql",
    "_search_evaluation_datasets_handler", "_calculate_trace_filter_correlation",
    "serve_search_datasets", "serve_post_ui_telemetry",
}  # fmt: skip
WRITES = {
    "_create_run", "_update_run", "_delete_run", "_restore_run", "_log_param", "_log_metric",
    "_set_tag", "_delete_tag", "_log_batch", "_log_model", "_log_inputs", "_log_outputs",
    "_create_experiment", "_delete_experiment", "_restore_experiment", "_update_experiment",
    "_set_experiment_tag", "_delete_experiment_tag",
    "_create_logged_model", "_finalize_logged_model", "_delete_logged_model",
    "_set_logged_model_tags", "_delete_logged_model_tag", "_log_logged_model_params",
    "_create_registered_model", "_delete_registered_model", "_update_registered_model",
    "_rename_registered_model", "_create_model_version", "_delete_model_version",
    "_update_model_version", "_transition_stage", "_set_registered_model_tag",
    "_delete_registered_model_tag", "_set_model_version_tag", "_delete_model_version_tag",
    "_set_registered_model_alias", "_delete_registered_model_alias",
}  # fmt: skip
ARTIFACT_WRITES = {
    "_upload_artifact", "_delete_artifact_mlflow_artifacts", "_create_multipart_upload_artifact",
    "_complete_multipart_upload_artifact", "_abort_multipart_upload_artifact",
}  # fmt: skip


def owned_protocol(system_users: Collection[str]) -> type[H11Protocol]:
    """Return uvicorn's protocol, with requests that know their connection."""

    class OwnedProtocol(H11Protocol):
        def connection_made(self, transport) -> None:
            super().connection_made(transport)
            connection = Connection(transport.get_extra_info("socket"), system_users)
            application = self.app

            async def with_connection(scope, receive, send) -> None:
                owned_stores.connection.set(connection)
                await application(scope, receive, send)

            self.app = with_connection

    return OwnedProtocol


def application() -> FastAPI:
    """Return the server's application, with its stores opened."""
    from mlflow.exceptions import MlflowException
    from mlflow.server import app as flask_app, handlers
    from mlflow.server.artifact_router import artifact_router
    from mlflow.server.fastapi_app import _EfficientWSGIMiddleware
    from mlflow.server.fastapi_security import init_fastapi_security
    from mlflow.server.mlflow_response import mlflow_exception_response
    from mlflow.server.server_info_api import server_info_router

    own_stores(handlers)
    handlers.initialize_backend_stores(*(os.environ[name] for name in STORES))
    flask_app.before_request(handlers.catch_mlflow_exception(check_request))
    server = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    init_fastapi_security(server)

    @server.exception_handler(MlflowException)
    def answer(request, error):  # noqa: ARG001 - a handler's shape
        return mlflow_exception_response(error, handler_name="serve")

    server.include_router(artifact_router, dependencies=[Depends(check_artifact_request)])
    server.include_router(server_info_router)
    server.mount("/", _EfficientWSGIMiddleware(flask_app))
    return server


def own_stores(handlers) -> None:
    """Have MLflow put every store that it opens behind an OwnedStore."""
    for registry in (handlers._tracking_store_registry, handlers._model_registry_store_registry):
        for scheme in ("mysql", "sqlite"):
            build = registry._registry[scheme]

            def build_owned(*args, build=build, **kwargs):
                return owned_stores.OwnedStore(build(*args, **kwargs))

            registry.register(scheme, build_owned)


def check_request() -> None:
    """Raise MlflowException for a request to Flask that its caller may not make.

    The stores check what most of them write. The rest are artifacts, and interfaces of which nobody
    has decided yet what they write.
    """
    from flask import request
    from mlflow.utils.uri import validate_path_is_safe

    view = request.endpoint
    if request.method in SAFE or view in READS_BY_POST | WRITES:
        return
    if view in ARTIFACT_WRITES:
        path = validate_path_is_safe(request.view_args["artifact_path"])
        owned_stores.require_artifact(tracking_store(), path)
    elif view == "serve_upload_artifact":
        run_id = request.args.get("run_uuid", "")
        owned_stores.require_artifact(tracking_store(), f"0/{run_id}/artifacts")
    elif not owned_stores.writer().is_system:
        raise owned_stores.refusal("this part of MLflow is for the cluster's administrators")


def check_artifact_request(request: Request) -> None:
    """Raise MlflowException for an upload to a run that is not the caller's."""
    from mlflow.utils.uri import validate_path_is_safe

    if request.method not in SAFE:
        path = validate_path_is_safe(request.path_params["artifact_path"])
        owned_stores.require_artifact(tracking_store(), path)


def tracking_store():
    from mlflow.server.handlers import _get_tracking_store

    return _get_tracking_store()


def main() -> None:
    import uvicorn

    options = parse_arguments()
    database = options.backend_store_uri
    # What `mlflow server` sets, before the first import of mlflow.server reads it.
    os.environ.update(
        {
            **dict(zip(STORES, (database, database, ARTIFACTS), strict=True)),
            "_MLFLOW_SERVER_ARTIFACT_DESTINATION": options.artifacts_destination,
            "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
            "_MLFLOW_SGI_NAME": "uvicorn",
            "MLFLOW_SERVER_ALLOWED_HOSTS": options.allowed_hosts,
        }
    )
    uvicorn.run(
        application(),
        host=options.host,
        port=options.port,
        http=owned_protocol({options.system_user}),
        proxy_headers=False,  # a client's word about its address
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--allowed-hosts", required=True)
    parser.add_argument("--backend-store-uri", required=True)
    parser.add_argument("--artifacts-destination", required=True)
    parser.add_argument("--system-user", default="slurm")
    return parser.parse_args()


if __name__ == "__main__":
    main()
