"""The preflight of a command: before its first change, or beside its preview."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from toolkit.deploy.preflight.findings import Preflight, Severity
from toolkit.deploy.preflight.run import preflight
from toolkit.errors import AccountNotReady, ToolkitError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from toolkit.config import ClusterConfig
    from toolkit.deploy.cluster import DeployPreview
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.deploy.session import Clients
    from toolkit.output import Reporter

SKIPPED = "warning: preflight skipped: the account was not asked whether it can have this cluster"


@dataclass(frozen=True, slots=True)
class AccountCheck:
    """A command's preflight; with `skip` it asks nothing and warns."""

    config: ClusterConfig
    clients: Clients
    report: Reporter
    path: Path
    lock: ImageLock
    skip: bool = False

    def ask(self) -> Preflight | None:
        """Return the findings; None if they are skipped."""
        if self.skip:
            self.report.line(SKIPPED)
            return None
        return preflight(self.config, self.clients, self.report, self.path, self.lock)

    def require(self, result: Preflight | None) -> None:
        """Print warnings and notes. Raises AccountNotReady with every error."""
        if result is None:
            return
        for item in result.findings:
            if item.severity is not Severity.ERROR:
                self.report.line(str(item))
        if not result.ready:
            raise AccountNotReady(
                f"{result.source}: {_count(len(result.errors))} in the account\n"
                + "\n".join(f"  {item.place} [{item.slug}]" for item in result.errors),
                next_step="mend them, or go on in spite of them with --skip-preflight",
            )

    def beside(
        self, preview: Callable[[], DeployPreview]
    ) -> tuple[Preflight | None, DeployPreview]:
        """Return the findings and the preview.

        A preview that fails where the account isn't ready gives the findings as the cause.
        """
        result = self.ask()
        try:
            return result, preview()
        except (ToolkitError, ClientError) as error:
            if result is not None and not result.ready:
                try:
                    self.require(result)
                except AccountNotReady as not_ready:
                    raise not_ready from error
            raise


def _count(problems: int) -> str:
    return f"{problems} problem{'' if problems == 1 else 's'}"
