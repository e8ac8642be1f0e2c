"""Send the head's heartbeat to CloudWatch, where an alarm waits for it; a timer starts it as slurm.

No heartbeat is sent while reconcile does nothing: because it does not run, or can't read Slurm or
EC2. None is sent while the head's data volume is nearly full either. It is a program of its own,
so that a slow CloudWatch delays no pass.
"""

from __future__ import annotations

from slurmplugins.cloud.client import client
from slurmplugins.cloud.metrics import put_heartbeat
from slurmplugins.config import burst, paths
from slurmplugins.head.free_space import read_free_shares
from slurmplugins.head.silence import silence_reason
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.log_events import LogEvent


def main() -> None:
    log = program.open_log("heartbeat")

    def work() -> None:
        settings = burst.load(paths.BURST)
        if settings.heartbeat_namespace is None:
            return
        clock = SystemClock()
        last_pass = LastPass.load(paths.STATE)
        if reason := silence_reason(last_pass, read_free_shares(), clock.now()):
            log.warning(LogEvent.HEARTBEAT_WITHHELD, why=reason)
            return
        put_heartbeat(
            settings.heartbeat_namespace,
            lambda: client("cloudwatch", settings.region, settings.endpoint_url),
            clock,
        )

    raise SystemExit(program.run_to_exit_code(log, work))


if __name__ == "__main__":
    main()
