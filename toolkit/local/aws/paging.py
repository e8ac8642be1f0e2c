"""Pages of a list, as EC2 cuts them: by MaxResults, with a token for the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from toolkit.local.aws.aws_errors import ec2_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")


def page(
    rows: Sequence[T],
    params: Mapping[str, Any],
    *,
    size: int,
    weight: Callable[[T], int] = lambda _: 1,
) -> tuple[Sequence[T], str | None]:
    """Return the rows of one page, and the next page's token.

    A page holds rows of a weight up to `size`, or MaxResults if that is less; its first row always
    fits. Refuses a token that no page had.
    """
    token = str(params.get("NextToken") or "0")
    if not token.isdecimal():
        raise ec2_error("InvalidNextToken", f"The token '{token}' is invalid")
    most = min(int(params.get("MaxResults") or size), size)
    first = last = int(token)
    total = 0
    while last < len(rows) and (last == first or total + weight(rows[last]) <= most):
        total += weight(rows[last])
        last += 1
    return rows[first:last], str(last) if last < len(rows) else None
