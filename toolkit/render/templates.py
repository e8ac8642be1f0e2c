"""Strict Jinja: a name that the context lacks is an error, never an empty string."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from toolkit.errors import RenderError

if TYPE_CHECKING:
    from pathlib import Path


@cache  # an environment keeps its compiled templates
def environment(root: Path) -> Environment:
    """Return the environment for templates below `root`.

    The files are configuration, not HTML, so nothing is escaped.
    """
    return Environment(
        loader=FileSystemLoader(root),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # slurm.conf has no markup; values are checked instead
    )


def render(jinja: Environment, name: str, **context: object) -> str:
    """Return the template's text.

    Raises RenderError when it and its context don't fit together.
    """
    try:
        return jinja.get_template(name).render(**context)
    except TemplateError as error:
        raise RenderError(f"{name}: {error}") from error
