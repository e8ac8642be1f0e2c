"""Choose the kernel of an image: the running one if it has every driver, else the newest.

Stdin holds JSON: lists of package names, the best list first, with `{kernel}` in place of a
kernel's release. Stdout gets JSON: the kernel, and the packages of the first list that apt can
install for some kernel. Without such a kernel the exit code is 1, and stderr has the reason.
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
    """Return the kernels of these Lustre clients: the running one, then from the newest."""
    kernels = {name.removeprefix(CLIENT) for name in names if name.startswith(CLIENT)}
    newest = sorted(filter(RELEASE.fullmatch, kernels), key=_numbers, reverse=True)
    return sorted(newest, key=lambda kernel: kernel != running)


def choose(
    lists: Sequence[Sequence[str]],
    kernels: Sequence[str],
    installable: Callable[[Sequence[str]], bool],
) -> tuple[str, list[str]] | None:
    """Return the first installable kernel and packages; None without any.

    A better list counts more than a better kernel.
    """
    for packages in lists:
        for kernel in kernels:
            kernel_packages = [package.replace("{kernel}", kernel) for package in packages]
            if installable(kernel_packages):
                return kernel, kernel_packages
    return None


def _numbers(release: str) -> tuple[int, ...]:
    match = RELEASE.fullmatch(release)
    return tuple(map(int, match.groups())) if match else ()


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
    last_choice = [package.replace("{kernel}", kernels[0]) for package in lists[-1]]
    simulation = _apt("apt-get", "install", "--simulate", "--no-install-recommends", *last_choice)
    return (
        f"AWS has a Lustre client for {', '.join(kernels[:SHOWN])}"
        f"{' and older kernels' if len(kernels) > SHOWN else ''}, but apt can't install all"
        f" drivers for any of them; this image runs {running}. In cluster.yaml, set images.base to an"
        f" older image whose own kernel is one of these."
        f" For {kernels[0]} apt printed: {simulation.stderr.strip()}"
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
