"""Choose the kernel of an image: the one that runs if every driver is made for it, else the newest.

On stdin, as JSON: lists of package names, the best list first, with `{kernel}` where a kernel's
release goes. On stdout, as JSON: the kernel, and the packages of the first list that apt can install
for some kernel. Exit code 1, and why on stderr, where there is none.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CLIENT = "lustre-client-modules-"
RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)-(\d+)-aws")
SHOWN = 6


def candidates(names: Sequence[str], running: str) -> list[str]:
    """The kernels these Lustre clients are for: the running one first, then from the newest."""
    kernels = {name.removeprefix(CLIENT) for name in names if name.startswith(CLIENT)}
    newest = sorted(filter(RELEASE.fullmatch, kernels), key=_numbers, reverse=True)
    return sorted(newest, key=lambda kernel: kernel != running)


def choose(
    lists: Sequence[Sequence[str]],
    kernels: Sequence[str],
    installable: Callable[[Sequence[str]], bool],
) -> tuple[str, list[str]] | None:
    """The first list that can be installed for some kernel, and the first kernel it can be for."""
    for packages in lists:
        for kernel in kernels:
            named = [package.replace("{kernel}", kernel) for package in packages]
            if installable(named):
                return kernel, named
    return None


def _numbers(release: str) -> tuple[int, ...]:
    found = RELEASE.fullmatch(release)
    return tuple(map(int, found.groups())) if found else ()


def _apt(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"}
    )


def _installable(packages: Sequence[str]) -> bool:
    command = ["apt-get", "install", "--simulate", "--quiet", "--no-install-recommends"]
    return _apt(*command, *packages).returncode == 0


def _refusal(lists: Sequence[Sequence[str]], kernels: Sequence[str], running: str) -> str:
    if not kernels:
        return f"AWS's repository has no Lustre client ({CLIENT}*) for this Ubuntu"
    last = [package.replace("{kernel}", kernels[0]) for package in lists[-1]]
    why = _apt("apt-get", "install", "--simulate", "--no-install-recommends", *last).stderr
    return (
        f"AWS has a Lustre client for {', '.join(kernels[:SHOWN])}"
        f"{' and older kernels' if len(kernels) > SHOWN else ''}, but for none of them can all"
        f" drivers be installed; this image runs {running}. Name an older image under images.base in"
        f" cluster.yaml, whose own kernel is one of these. For {kernels[0]} apt said: {why.strip()}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the choice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--running", required=True, help="the release of the kernel that runs")
    running = parser.parse_args(arguments).running
    lists = json.load(sys.stdin)
    kernels = candidates(_apt("apt-cache", "pkgnames", CLIENT).stdout.split(), running)
    chosen = choose(lists, kernels, _installable)
    if chosen is None:
        print(_refusal(lists, kernels, running), file=sys.stderr)
        return 1
    json.dump(dict(zip(("kernel", "packages"), chosen, strict=True)), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
