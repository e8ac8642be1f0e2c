"""A node's answers by ident: RFC 1413."""

import pytest

from slurmplugins.node.ident import answer

NODE, HEAD = "10.42.1.20", "10.42.1.10"


def whose(own, other):
    return 2001 if (own, other) == ((NODE, 40_001), (HEAD, 5000)) else None


def test_the_uid_of_a_connection_is_told_to_its_other_end():
    assert answer("40001, 5000\r\n", NODE, HEAD, whose) == "40001, 5000 : USERID : OTHER : 2001"
    assert answer("40001,5000", NODE, HEAD, whose) == "40001, 5000 : USERID : OTHER : 2001"


def test_a_connection_of_somebody_else_is_not_told():
    assert answer("40001, 5000", NODE, "10.42.1.66", whose) == "40001, 5000 : ERROR : NO-USER"
    assert answer("40002, 5000", NODE, HEAD, whose) == "40002, 5000 : ERROR : NO-USER"


@pytest.mark.parametrize(
    "question", ["", "40001", "0, 5000", "40001, 65536", "1, 2, 3", "a, b", "-1, 5", "٣, 5"]
)
def test_a_question_that_is_none_is_answered_with_an_error(question):
    assert answer(question, NODE, HEAD, whose).endswith(": ERROR : INVALID-PORT")
