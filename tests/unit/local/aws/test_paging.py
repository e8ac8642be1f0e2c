"""Pages of EC2's lists, and the tokens between them."""

import pytest
from moto.ec2.exceptions import EC2ClientError

from toolkit.local.aws.paging import page


def pages(rows, *, size, **params):
    """Return all pages of a list, by the tokens between them."""
    found, token = [], None
    while True:
        rows_of_page, token = page(rows, {**params, "NextToken": token}, size=size)
        found.append(list(rows_of_page))
        if token is None:
            return found


@pytest.mark.parametrize(
    ("count", "most", "lengths"),
    [(0, None, [0]), (3, None, [3]), (4, None, [3, 1]), (4, 2, [2, 2]), (4, 99, [3, 1])],
)
def test_pages_hold_every_row_once(count, most, lengths):
    """Cut at MaxResults, but never above the size."""
    found = pages(list(range(count)), size=3, MaxResults=most)
    assert [len(rows) for rows in found] == lengths
    assert [row for rows in found for row in rows] == list(range(count))


def test_a_row_counts_by_its_weight_and_the_first_always_fits():
    """Keep a reservation whole, also one larger than a page."""
    weights, rows, token = [2, 5, 1, 1], [], None
    while True:
        found, token = page(weights, {"NextToken": token}, size=3, weight=lambda row: row)
        rows.append(list(found))
        if token is None:
            break
    assert rows == [[2], [5], [1, 1]]


def test_a_token_that_is_no_number_is_refused():
    with pytest.raises(EC2ClientError, match="is invalid"):
        page([1], {"NextToken": "x"}, size=1)
