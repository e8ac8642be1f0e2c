"""Errors between a run and a trainer, under the one tree in `toolkit.errors`.

* ToolkitError
  * AdapterError                  adapter-failed            1
    - PackageMissing              adapter-package-missing   2
    - Unsupported                 adapter-unsupported       2
"""
# ruff: noqa: N818  # as in toolkit.errors

from toolkit.errors import ToolkitError


class AdapterError(ToolkitError):
    """The error of a trainer by which a run can't train."""

    reason = "adapter-failed"


class PackageMissing(AdapterError):
    """The error of a trainer whose package is not installed."""

    reason = "adapter-package-missing"
    exit_code = 2

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed",
            next_step=f"pip install 'slurm-ec2-toolkit[{extra}]', or {package} itself",
        )


class Unsupported(AdapterError):
    """The error of a trainer whose set-up would lose or repeat work."""

    reason = "adapter-unsupported"
    exit_code = 2
