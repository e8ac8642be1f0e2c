"""The program that tags MLflow runs; it is sent to the head node and runs there.

Standard library only, nothing of the toolkit, any Python 3.9 or later: the head's own interpreter
runs it. Arguments: the tracking server's URL, and JSON {job id: {tag: value}}. Prints the ids of
the runs that it tagged, as JSON.
"""

import json
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

TAG = "toolkit.job_id"  # what toolkit.training writes on every run
EXPERIMENTS_A_QUERY = 100


class Server:
    """MLflow's REST interface."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"not an HTTP address: {url}")
        self._url = url

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST one request; any refusal raises."""
        request = urllib.request.Request(  # noqa: S310  # the scheme is checked above
            f"{self._url}/api/2.0/mlflow/{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found

    def pages(self, path: str, body: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
        """Every item of a paged list."""
        token = ""
        while True:
            answer = self.call(path, {**body, "page_token": token} if token else body)
            yield from answer.get(key, [])
            token = answer.get("next_page_token") or ""
            if not token:
                return


def tag(server: Server, jobs: dict[str, dict[str, str]]) -> list[str]:
    """Set the tags on every run that is tagged with one of the job ids."""
    found = server.pages("experiments/search", {"max_results": 1000}, "experiments")
    experiments = [one["experiment_id"] for one in found]
    done = []
    for start in range(0, len(experiments), EXPERIMENTS_A_QUERY):
        for job, tags in jobs.items():
            query = {
                "experiment_ids": experiments[start : start + EXPERIMENTS_A_QUERY],
                "filter": f"tags.`{TAG}` = '{int(job)}'",
                "max_results": 100,
            }
            for run in server.pages("runs/search", query, "runs"):
                run_id = run["info"]["run_id"]
                for key, value in tags.items():
                    server.call("runs/set-tag", {"run_id": run_id, "key": key, "value": value})
                done.append(run_id)
    return done


if __name__ == "__main__":
    sys.stdout.write(json.dumps(tag(Server(sys.argv[1]), json.loads(sys.argv[2]))) + "\n")
