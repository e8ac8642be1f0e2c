"""Play torchrun's agent: start the ranks of one node, end them together, exit with 0 or 1.

played_torchrun.py [torchrun's options] -- SCRIPT [arguments…]

The ranks are forked from this process, which has imported what the script imports. So a launch
costs one import of torch; with torchrun it costs one a rank, and the agent's two.
"""

import argparse
import ast
import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--nproc-per-node", type=int, required=True)
    parser.add_argument("--master-addr", required=True)
    parser.add_argument("--master-port", required=True)
    parser.add_argument("--rdzv-id", required=True)
    for ignored in ("--nnodes", "--node-rank", "--rdzv-backend", "--local-addr", "--max-restarts"):
        parser.add_argument(ignored)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def environment(args: argparse.Namespace, rank: int) -> dict[str, str]:
    """What torchrun tells a rank; that it keeps the store itself, it does not."""
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


def import_what_it_imports(script: Path) -> None:
    for line in ast.parse(script.read_bytes()).body:
        if isinstance(line, ast.Import):
            for name in line.names:
                importlib.import_module(name.name)
        elif isinstance(line, ast.ImportFrom) and line.module:
            importlib.import_module(line.module)


def together(ranks: list[int]) -> int:
    """Wait for all; the first that fails ends the others, as it does in torchrun."""
    failed = False
    while ranks:
        ended, status = os.wait()
        ranks.remove(ended)
        if status and not failed:
            failed = True
            for rank in ranks:
                os.kill(rank, signal.SIGTERM)
    return int(failed)


def main() -> int:
    args = parse()
    if args.nproc_per_node == 1:  # nothing is won by a fork
        argv = [sys.executable, args.script, *args.arguments]
        return int(subprocess.call(argv, env=os.environ | environment(args, 0)) != 0)
    import forked

    script = Path(args.script).resolve()
    import_what_it_imports(script)
    sys.path[0] = str(script.parent)
    argv = [args.script, *args.arguments]
    return together(
        [forked.attempt(argv, environment(args, rank)) for rank in range(args.nproc_per_node)]
    )


if __name__ == "__main__":
    sys.exit(main())
