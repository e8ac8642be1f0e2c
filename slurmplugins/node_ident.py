"""The service on every compute node that tells the head whose a connection to it is.

It answers by the ident protocol (`node.ident`). It is a process of its own: any process of the
cluster can reach its port, and the node agent must not wait for that.
"""

from __future__ import annotations

from typing import Final

from slurmplugins.config import node as node_config
from slurmplugins.node.ident import PORT, IdentServer
from slurmplugins.system import program
from slurmplugins.system.log_events import LogEvent

EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - only the head gets an answer


def main() -> None:
    log = program.open_log("node-ident")

    def work() -> None:
        settings = node_config.load()
        server = IdentServer(EVERY_ADDRESS, PORT, head=settings.head_address)
        log.info(LogEvent.PROGRAM_STARTED, port=PORT)
        server.serve_forever()

    raise SystemExit(program.run_to_exit_code(log, work))


if __name__ == "__main__":
    main()
