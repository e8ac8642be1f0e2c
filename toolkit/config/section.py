"""The base class of the sections of cluster.yaml."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen, strict section: unknown keys and values of another type are mistakes.

    The string below a field is its description in `toolkit config schema`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )
