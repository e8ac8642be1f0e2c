"""The names that moto asks of each resource type of a stack."""

from __future__ import annotations

from typing import ClassVar


class StackType:
    """The names of a resource type.

    moto looks for its types among the direct subclasses of CloudFormationModel. So a type names
    both classes as its bases.
    """

    TYPE: ClassVar[str]
    NAME_PROPERTY: ClassVar[str] = ""
    """The property that names the resource; "" where there is none."""

    @classmethod
    def cloudformation_name_type(cls) -> str:
        """Return the property that names the resource."""
        return cls.NAME_PROPERTY

    @classmethod
    def cloudformation_type(cls) -> str:
        """Return the resource type."""
        return cls.TYPE
