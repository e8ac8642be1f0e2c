"""A stand-in for torchrun's agent: fork_server starts one node's ranks.

fake_torchrun.py [torchrun's options] -- SCRIPT [arguments…]

FORK_SERVER is the server's socket. Without torchrun's options the script has no rank. The exit
status is 0 or 1.

This launch is fast, because nothing imports torch. With torchrun the agent and each rank import it.
"""

import argparse
import json
import os
import socket
import sys
from pathlib import Path


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--nproc-per-node", type=int)
    parser.add_argument("--master-addr")
    parser.add_argument("--master-port")
    parser.add_argument("--rdzv-id")
    for ignored in ("--nnodes", "--node-rank", "--rdzv-backend", "--local-addr", "--max-restarts"):
        parser.add_argument(ignored)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def environment(args: argparse.Namespace, rank: int) -> dict[str, str]:
    """Return torchrun's environment of a rank.

    The variable that says that the agent keeps the store is left out.
    """
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(args.nproc_per_node),
        "LOCAL_WORLD_SIZE": str(args.nproc_per_node),
        "MASTER_ADDR": args.master_addr,
        "MASTER_PORT": args.master_port,
        "TORCHELASTIC_RUN_ID": args.rdzv_id,
    }


def main() -> int:
    args = parse()
    request = {
        "argv": [args.script, *args.arguments],
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
        "ranks": [environment(args, rank) for rank in range(args.nproc_per_node or 0)] or [{}],
    }
    said = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ["FORK_SERVER"])
        socket.send_fds(server, [len(said).to_bytes(8)], [1, 2])
        server.sendall(said)
        return (server.recv(1) or b"\1")[0]


if __name__ == "__main__":
    sys.exit(main())
