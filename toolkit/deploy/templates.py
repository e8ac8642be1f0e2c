"""Renders templates/aws; a name that the context lacks is an error."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.exceptions import TemplateError

from toolkit import assets
from toolkit.errors import RenderError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def render(name: str, context: Mapping[str, Any]) -> str:
    """Render one template of templates/aws.

    Raises RenderError, also for text that YAML can't carry.
    """
    try:
        jinja = _environment(assets.directory("templates") / "aws")
        return jinja.get_template(name).render(context)
    except TemplateError as error:
        raise RenderError(f"templates/aws/{name}: {error}") from error


@cache  # an environment keeps its compiled templates
def _environment(root: Path) -> Environment:
    # S701: the output is YAML and shell, not HTML; every value is checked text or goes by tojson.
    environment = Environment(  # noqa: S701
        loader=FileSystemLoader(root),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    return environment
