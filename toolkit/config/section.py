"""What every section of cluster.yaml is."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Frozen, and strict: an unknown key or a value of another type is a mistake, not a guess."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
