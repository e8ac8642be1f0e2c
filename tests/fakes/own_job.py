"""A slurmctld as one job reads it through scontrol and sacct."""

import json
import subprocess


class FakeScontrol:
    """A slurmctld with one job, which obeys scontrol.

    - `accounting`: a line for each attempt, `job|state|start`, and `|end` if it ended. None: sacct
      fails.
    - `events`: the node events of slurmdbd, `node|since|state|reason`.
    - `deaf`: every call times out.
    - `slow`: the verbs whose calls time out.
    - `garbled`: the answer to every `show`.
    """

    def __init__(
        self, *, comment="", nodes=(), deaf=False, slow=(), garbled="", accounting=""
    ) -> None:
        self.job = {
            "job_id": 12, "comment": comment, "job_state": ["RUNNING"], "nodes": "gpu-[001-002]"
        }  # fmt: skip
        self.nodes, self.deaf, self.slow, self.garbled = list(nodes), deaf, slow, garbled
        self.done: list[str] = []
        self.accounting = accounting
        self.events = ""
        self.asked = 0

    def before(self) -> None:
        """Run before each call of scontrol; a test may kill here."""

    def __call__(self, argv) -> str:
        verb = argv[1:]
        if "sacctmgr" in argv:
            return self.events
        if "sacct" in argv and self.accounting is None:
            raise subprocess.CalledProcessError(1, list(argv))
        if "sacct" in argv:
            return self._rows(argv[-1].removeprefix("--format=").split(","))
        self.before()
        self.asked += 1
        if self.deaf or verb[0] in self.slow:
            raise subprocess.TimeoutExpired(list(argv), 10)
        if verb[0] == "show" and self.garbled:
            return self.garbled
        if verb[:2] == ["show", "job"]:
            return json.dumps({"jobs": [self.job]})
        if verb[:2] == ["show", "nodes"]:
            return json.dumps({"nodes": self.nodes})
        if verb[0] == "update" and verb[-1].startswith("comment="):
            self.job["comment"] = verb[-1].removeprefix("comment=")
        else:
            self.done.append(" ".join(verb))
        return ""

    def _rows(self, fields) -> str:
        if "|" not in self.accounting:
            return self.accounting
        names = ("JobIDRaw", "State", "Start", "End")
        lines = (f"{line}|Unknown".split("|") for line in self.accounting.splitlines())
        rows = (dict(zip(names, line, strict=False)) for line in lines)
        return "".join("|".join(row[field] for field in fields) + "\n" for row in rows)
