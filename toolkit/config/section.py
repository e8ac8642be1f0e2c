"""The base class of the sections of cluster.yaml."""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler


class Section(BaseModel):
    """A frozen, strict section: unknown keys and values of another type are mistakes.

    The string below a field is its description in `toolkit config schema`.
    """

    # Pydantic would read the source of each class at import, for descriptions that few ask for.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Add the descriptions of the fields."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for base in cls.__mro__:
            if issubclass(base, Section):
                for name, text in _descriptions(base).items():
                    properties[name].setdefault("description", text)
        return schema


def _descriptions(section: type[Section]) -> dict[str, str]:
    """Return the string below each field of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    found = {}
    for field, below in pairwise(getattr(tree, "body", ())):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[field.target.id] = inspect.cleandoc(text.value)
    return found
