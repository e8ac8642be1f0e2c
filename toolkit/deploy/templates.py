"""Renders templates/aws: a name the context lacks is an error, and so is text YAML can't carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.exceptions import TemplateError

from toolkit.deploy import assets
from toolkit.errors import RenderError

if TYPE_CHECKING:
    from collections.abc import Mapping


def render(name: str, context: Mapping[str, Any]) -> str:
    """Render one template of templates/aws."""
    # S701: the output is YAML and shell, not HTML; every value is checked text or goes by tojson.
    environment = Environment(  # noqa: S701
        loader=FileSystemLoader(assets.directory("templates") / "aws"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    try:
        return environment.get_template(name).render(context)
    except TemplateError as error:
        raise RenderError(f"templates/aws/{name}: {error}") from error
