"""`python -m toolkit.local.machines`: build the base image ahead, before anything is installed.

Needs the standard library only, so `scripts/setup` runs it while pip works. Quiet: `toolkit local
up` looks for the image again, and is who says what is wrong when there is none. With a port for
the local cloud as its argument it builds nothing, and says what this host lacks.
"""

from __future__ import annotations

import sys

from toolkit.local.machines import factory, preflight
from toolkit.local.machines.errors import MachineError
from toolkit.local.machines.layout import Layout


def main() -> int:
    """Build the base image if the host can; 0 when it exists.

    1 when there is none afterwards, or the host lacks something.
    """
    layout = Layout.from_environment()
    if sys.argv[1:]:
        problems = preflight.check(layout, port=int(sys.argv[1]))
        for problem in problems or preflight.limitations(layout):
            sys.stderr.write(f"{problem}\n")
        return 1 if problems else 0
    if preflight.check(layout):
        return 1
    try:
        factory.base_builder(layout).build(lambda _phase, _detail: None)
    except MachineError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
