"""Contestant: aws-parallelcluster-node's own ResumeProgram, unchanged.

peer.py HOSTLIST

Its own virtualenv's Python runs it. Its configuration comes from CONFIG_FILE and SLURM_RESUME_FILE,
as on a head node. Only its log moves, which it would open in /var/log.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys

logging.basicConfig(filename=os.environ["PEER_LOG"], level=logging.INFO)

from slurm_plugin import resume  # noqa: E402 - after the log is in its place

resume.main()
used = resource.getrusage(resource.RUSAGE_SELF)
with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 - a line's worth
    peak = int(status.read().split("VmHWM:")[1].split()[0]) / 1024
sys.stdout.write(json.dumps({"cpu": used.ru_utime + used.ru_stime, "peak_mb": peak}))
