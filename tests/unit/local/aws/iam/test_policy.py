"""Policies are decided as AWS decides them."""

from __future__ import annotations

import pytest

from toolkit.local.aws.iam import policy
from toolkit.local.aws.iam.conditions import UnknownPolicy
from toolkit.local.aws.iam.policy import Request, Right

TAG = "aws:RequestTag/toolkit:cluster"
ARN = "arn:aws:ec2:us-east-1:123456789012:instance/i-1"


def statement(**more):
    return {"Sid": "S", "Effect": "Allow", "Action": "ec2:*", "Resource": "*", **more}


def decide(request, *items):
    return policy.decide(policy.read("p", {"Statement": list(items)}), request)


def holds(condition, **context):
    """Judge one condition; __ in a key stands for its colon."""
    keys = {name.replace("__", ":"): value for name, value in context.items()}
    return decide(Request("ec2:X", ARN, keys), statement(Condition=condition)).allowed


def test_without_a_statement_that_allows_nothing_is_allowed():
    assert not decide(Request("ec2:X", ARN)).allowed
    assert not decide(Request("s3:X", ARN), statement()).allowed


def test_a_deny_wins_wherever_it_stands():
    deny = statement(Sid="No", Effect="Deny")
    for items in ((statement(), deny), (deny, statement())):
        decision = decide(Request("ec2:X", ARN), *items)
        assert not decision.allowed
        assert decision.right == Right("p", "No", "ec2:*", "*")


def test_a_decision_names_the_pair_of_action_and_resource_that_gave_it():
    item = statement(Action=["ec2:A", "ec2:RunInstances"], Resource=["x", "arn:aws:ec2:*:*:*"])
    right = decide(Request("ec2:runinstances", ARN), item).right
    assert right == Right("p", "S", "ec2:RunInstances", "arn:aws:ec2:*:*:*")


@pytest.mark.parametrize(
    ("action", "resource", "expected"),
    [("ec2:Run*", "*", True), ("EC2:runinstances", "*", True), ("ec2:Run", "*", False),
     ("ec2:?unInstances", "*", True), ("*", ARN, True), ("*", ARN.upper(), False),
     ("*", "arn:aws:ec2:*:*:instance/?-1", True), ("*", "arn:aws:ec2:*:*:volume/*", False)],
)  # fmt: skip
def test_wildcards_fit_actions_without_case_and_resources_with_it(action, resource, expected):
    decision = decide(Request("ec2:RunInstances", ARN),
                      statement(Action=action, Resource=resource))  # fmt: skip
    assert decision.allowed is expected


def test_not_action_and_not_resource_are_about_everything_else():
    item = {"Effect": "Allow", "NotAction": "iam:*", "NotResource": "arn:aws:s3:::a/*"}
    assert decide(Request("s3:GetObject", "arn:aws:s3:::b/k"), item).allowed
    assert not decide(Request("iam:PassRole", "arn:aws:s3:::b/k"), item).allowed
    assert not decide(Request("s3:GetObject", "arn:aws:s3:::a/k"), item).allowed


def test_all_conditions_of_a_statement_must_hold_and_one_value_of_each_suffices():
    both = {"StringEquals": {"ec2:InstanceType": ["a", "b"], "ec2:Region": "r"}}
    assert holds(both, ec2__InstanceType="b", ec2__Region="r")
    assert not holds(both, ec2__InstanceType="b", ec2__Region="s")
    assert not holds(both, ec2__InstanceType="b")


def test_the_name_of_a_key_has_no_case_and_the_key_of_a_tag_has():
    item = statement(Condition={"StringEquals": {"AWS:requesttag/toolkit:cluster": "demo"}})
    assert decide(Request("ec2:X", ARN, {TAG: "demo"}), item).allowed
    other = {"aws:RequestTag/Toolkit:Cluster": "demo"}
    assert not decide(Request("ec2:X", ARN, other), item).allowed


@pytest.mark.parametrize(
    ("operator", "wanted", "found", "expected"),
    [
        ("StringEquals", "a", "A", False),
        ("StringEqualsIgnoreCase", "a", "A", True),
        ("StringNotEquals", ["a", "b"], "c", True),
        ("StringNotEquals", ["a", "b"], "b", False),
        ("StringLike", "toolkit:order.*", "toolkit:order.2", True),
        ("StringNotLike", "g5.*", "g5.xlarge", False),
        ("ArnLike", "arn:aws:iam::*:role/*", "arn:aws:iam::1:role/a", True),
        ("ArnLike", "arn:aws:iam::*", "arn:aws:iam::1:role/a", False),
        ("ArnNotEquals", "arn:aws:iam::1:role/b", "arn:aws:iam::1:role/a", True),
        ("NumericLessThanEquals", "1", "1", True),
        ("NumericGreaterThan", "1", "1", False),
        ("NumericEquals", "1", "one", False),
    ],
)
def test_each_operator_compares_as_its_name_says(operator, wanted, found, expected):
    assert holds({operator: {"ec2:InstanceType": wanted}}, ec2__InstanceType=found) is expected


def test_a_boolean_of_json_is_the_word_of_the_request():
    assert holds({"Bool": {"aws:SecureTransport": False}}, aws__SecureTransport="false")


def test_a_missing_key_fails_all_but_negated_operators_if_exists_and_null():
    key = "ec2:InstanceType"
    assert not holds({"StringLike": {key: "*"}})
    assert holds({"StringNotEquals": {key: "a"}})
    assert holds({"StringEqualsIfExists": {key: "a"}})
    assert not holds({"StringEqualsIfExists": {key: "a"}}, ec2__InstanceType="b")
    assert holds({"Null": {key: "true"}})
    assert not holds({"Null": {key: "false"}})
    assert holds({"Null": {key: "false"}}, ec2__InstanceType="b")


def test_a_key_with_several_values_needs_all_or_any_of_them():
    keys, both = {"aws:TagKeys": ["a", "b"]}, ("a", "c")
    assert not holds({"ForAllValues:StringEquals": keys}, aws__TagKeys=both)
    assert holds({"ForAnyValue:StringEquals": keys}, aws__TagKeys=both)
    assert not holds({"StringEquals": keys}, aws__TagKeys=both)
    assert holds({"ForAllValues:StringEquals": keys}), "true without the key, as on AWS"
    assert not holds({"ForAnyValue:StringEquals": keys})


def test_a_variable_is_the_callers_value_and_fits_nothing_without_one():
    item = statement(Action="s3:*", Resource="arn:aws:s3:::b/${aws:PrincipalTag/user}/*")
    request = Request("s3:GetObject", "arn:aws:s3:::b/ada/k", {"aws:PrincipalTag/user": "ada"})
    assert decide(request, item).allowed
    for value in ({"aws:PrincipalTag/user": "eve"}, {"aws:PrincipalTag/user": "*"}, {}):
        assert not decide(Request(request.action, request.resource, value), item).allowed


@pytest.mark.parametrize(
    "more",
    [
        {"Principal": "*"},
        {"Condition": {"DateLessThan": {"ec2:Region": "1"}}},
        {"Condition": {"ForSomeValues:StringEquals": {"ec2:Region": "1"}}},
        {"Condition": {"StringEquals": {"ec2:Colour": "red"}}},
        {"Effect": "Maybe"},
    ],
)
def test_a_policy_with_an_unknown_part_is_refused_as_a_whole(more):
    """Raise while reading, because nobody may judge such a policy."""
    with pytest.raises(UnknownPolicy):
        policy.read("p", {"Statement": statement(**more)})
