"""A group of commands that offers the nearest name for a mistyped one."""

from __future__ import annotations

import click


class SuggestingGroup(click.Group):
    """Names the nearest commands of a mistyped one, with every version of click."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command.

        Raises UsageError (exit code 2) with the nearest names.
        """
        name = args[0]
        unknown = not name.startswith("-") and self.get_command(ctx, name) is None
        if unknown and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}.{self._nearest(ctx, name)}", ctx)
        return super().resolve_command(ctx, args)

    def _nearest(self, ctx: click.Context, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name, self.list_commands(ctx))
        return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
