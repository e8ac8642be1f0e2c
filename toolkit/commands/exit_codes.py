"""The exit codes of commands that say whether something differs.

They are those of `terraform plan -detailed-exitcode`, so that a pipeline can tell a
change from a mistake: https://developer.hashicorp.com/terraform/cli/commands/plan
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from collections.abc import Iterator

SAME: Final = 0
FAILED: Final = 1
DIFFERS: Final = 2


class ComparingCommand(click.Command):
    """A command whose exit code 2 means a difference; its errors exit with 1.

    Elsewhere 2 is a wrong option or an invalid file, and 4 is AWS.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read the options; a wrong one exits with 1, too."""
        with _errors_exit_with_1():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _errors_exit_with_1():
            return super().invoke(ctx)


@contextmanager
def _errors_exit_with_1() -> Iterator[None]:
    try:
        yield
    except ToolkitError as error:
        error.exit_code = FAILED
        raise
    except click.ClickException as error:
        error.exit_code = FAILED  # type: ignore[misc]  # click declares it for the class alone
        raise
