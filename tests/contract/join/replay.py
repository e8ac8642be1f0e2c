"""Answer a command as a captured site did: the stand-in for `ssh` in the tests of this folder.

    replay.py ANSWERS.json COMMAND

COMMAND is one word, as ssh gets it. A command that was not captured fails as a missing one does.
"""

import json
import shlex
import sys
from pathlib import Path

calls = {tuple(call["argv"]): call for call in json.loads(Path(sys.argv[1]).read_text())}
call = calls.get(
    tuple(shlex.split(sys.argv[2])), {"exit": 127, "stdout": "", "stderr": "not found"}
)
sys.stdout.write(call["stdout"])
sys.stderr.write(call["stderr"])
sys.exit(call["exit"])
