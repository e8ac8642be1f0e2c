"""Optuna's storage for the nodes: its gRPC proxy in front of the head node's database.

serve.py DATABASE_URL ADDRESS PORT
"""

import sys
import warnings

warnings.filterwarnings("ignore", message=".*experimental.*")

from optuna.storages import get_storage, run_grpc_proxy_server  # noqa: E402  # after the filter


def main() -> None:
    url, address, port = sys.argv[1:]
    # get_storage and not RDBStorage: it keeps finished trials in memory, which the proxy needs.
    run_grpc_proxy_server(get_storage(url), host=address, port=int(port))


if __name__ == "__main__":
    main()
