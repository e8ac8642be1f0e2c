"""Filters of instances and pages of rows, which EC2's Describe calls share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.paging import page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from toolkit.local.aws.instance_tables import LocalInstance


def matching(
    response: Any,
    instances: Iterable[LocalInstance],
    values: Callable[[str], Callable[[LocalInstance], Sequence[str]] | None],
) -> list[LocalInstance]:
    """Return the instances that match every filter of the request.

    `values` gives, by a filter's name, the function that reads an instance's values of it. EC2
    refuses a name that the call does not know with InvalidParameterValue: `values` gives None.
    """
    filters: Mapping[str, Sequence[str]] = response._filters_from_querystring()  # noqa: SLF001
    matching_instances = list(instances)
    for name, expected_values in filters.items():
        values_of = values(name)
        if values_of is None:
            raise ec2_error("InvalidParameterValue", f"The filter '{name}' is invalid")
        matching_instances = [
            instance
            for instance in matching_instances
            if set(values_of(instance)) & set(expected_values)
        ]
    return matching_instances


def answer(
    response: Any, field: str, rows: Sequence[Mapping[str, Any]], *, size: int
) -> ActionResult:
    """Return the page that the request names, at most `size` rows."""
    page_rows, next_token = page(rows, response.params, size=size)
    token = {"NextToken": next_token} if next_token else {}
    return ActionResult({field: page_rows, **token})
