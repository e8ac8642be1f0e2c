"""A training script's attempt, forked from a process with its imports.

The scripts of this folder import this module from their own folder.
"""

import os
import runpy
import sys
from collections.abc import Mapping, Sequence

# The imports of an attempt's first optimizer step and first save.
import torch._dynamo
import torch.nn.parallel  # noqa: F401  # for the attempts

import toolkit.training.run  # noqa: F401  # for the attempts
from toolkit.training.reproduce import installed_packages

installed_packages.lines()  # once for all attempts


def start(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run argv[0] with the rest as its arguments; return the pid.

    The child exits with the script's own code.
    """
    child = os.fork()
    if child:
        return child
    os.environ |= environment
    code = 1
    try:
        sys.argv = list(argv)
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except BaseException:  # noqa: BLE001  # its end is the child's end
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code)
