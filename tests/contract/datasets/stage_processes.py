"""Copies to S3 and back by processes that die by SIGKILL at each call of S3 in turn.

python stage_processes.py SITE HOME

For each call there is a store of its own. A first process dies there, a second one repeats the
copy. Each is forked from this process, which has done the slow imports. At the end it prints how
many calls a put and a get make, and how many bytes the repeated puts sent again.
"""

import json
import os
import signal
import sys
from itertools import count
from pathlib import Path

import boto3

from tests.fakes import service_models
from toolkit.datasets import __main__ as program, chunks
from toolkit.training.io.s3_bucket import S3Bucket

CHUNK = 1000  # in place of megabytes, which moto copies and hashes many times


def run(words: list[str], store: str, fatal: int | None, output: Path) -> bool:
    """Run a copy in a process; return whether it ended by itself."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            return False
        if os.WEXITSTATUS(status):
            raise SystemExit(f"{words} ended with {os.WEXITSTATUS(status)}")
        return True
    code = 1
    try:
        chunks.CHUNK = CHUNK
        os.environ["TOOLKIT_DATA_STORE"] = store
        if fatal is not None:
            _die_at(fatal)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        code = program.main([*words, "--json"])
        sys.stdout.flush()
    finally:
        os._exit(code)


def _die_at(fatal: int) -> None:
    numbers, call = count(), S3Bucket.call

    def dying(self: S3Bucket, *words: object, **parameters: object) -> object:
        answer = call(self, *words, **parameters)  # type: ignore[arg-type]  # as they came
        if next(numbers) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    S3Bucket.call = dying  # type: ignore[method-assign]  # in this process alone


def main() -> None:
    service_models.share()
    boto3.client("s3")  # its models are read once for all copies
    site, home = Path(sys.argv[1]), Path(sys.argv[2])
    output, sent = home / "output.json", []
    for put_calls in count():
        store = f"s3://between/put-{put_calls}"
        if run(["put", str(site), "data"], store, put_calls, output):
            break
        run(["put", str(site), "data"], store, None, output)
        sent.append(json.loads(output.read_text())["copied_bytes"])
        run(["get", "data@1", str(home / f"put-{put_calls}")], store, None, output)
    for get_calls in count():
        folder = home / f"get-{get_calls}"
        if run(["get", "data", str(folder)], store, get_calls, output):
            break
        run(["get", "data", str(folder)], store, None, output)
    print(json.dumps({"put": put_calls, "get": get_calls, "sent": sent}))  # noqa: T201  # the answer


if __name__ == "__main__":
    main()
