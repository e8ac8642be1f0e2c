"""An attempt of a training script as a process of its own, forked from one that has imported what
takes long. For scripts of this folder, which find it beside them.
"""

import os
import runpy
import sys
from collections.abc import Mapping, Sequence

# What the first optimizer step and the first save of an attempt would import.
import torch._dynamo
import torch.nn.parallel  # noqa: F401  # for the attempts

import toolkit.training.run  # noqa: F401  # for the attempts


def start(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run argv[0] with the rest as its arguments; the child's number. Its exit code is its own."""
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
