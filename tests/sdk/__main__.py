"""Print the Python of the oldest SDK's system, and a line for each package that pip is to install.

python -m tests.sdk
"""

from __future__ import annotations

import sys
import tomllib

from tests.sdk.systems import ROOT, oldest, requirements, systems


def main() -> None:
    system = oldest(systems())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (system.python, *requirements(system, project))
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
