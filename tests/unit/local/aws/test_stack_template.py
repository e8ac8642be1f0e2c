"""The order in which a template's resources are made."""

from __future__ import annotations

import pytest

from toolkit.local.aws.stack_template import order, references, unresolved


def template(**resources):
    return {"Resources": resources}


def test_a_resource_comes_after_its_dependencies():
    body = template(
        Head={
            "Type": "T",
            "DependsOn": ["Gate"],
            "Properties": {
                "Subnet": {"Ref": "Subnet"},
                "Arn": {"Fn::GetAtt": ["Role", "Arn"]},
                "Data": {"Fn::Base64": {"Fn::Sub": "${Bucket} ${Key.Id} ${!No} ${AWS::Region}"}},
            },
        },
        Subnet={"Properties": {"Vpc": {"Ref": "Vpc"}}},
        Vpc={},
        Role={},
        Bucket={},
        Key={},
        Gate={"DependsOn": "Vpc"},
    )
    ordered = order(body)
    assert ordered[-1] == "Head"
    assert ordered.index("Vpc") < ordered.index("Subnet")
    assert set(ordered) == set(body["Resources"])


def test_independent_resources_keep_their_order():
    assert order(template(B={}, A={}, C={})) == ("B", "A", "C")


def test_a_resource_that_checks_its_surroundings_comes_before_all_it_does_not_name():
    """Order a file system without, then with, its rule in DependsOn."""
    body = template(
        Rule={"Type": "AWS::EC2::SecurityGroupIngress", "Properties": {"G": {"Ref": "Group"}}},
        Head={"Type": "AWS::EC2::Instance"},
        Group={"Type": "AWS::EC2::SecurityGroup"},
        Interface={"Type": "AWS::EC2::NetworkInterface"},
        Files={"Type": "AWS::FSx::FileSystem", "Properties": {"G": {"Ref": "Group"}}},
    )
    assert order(body) == ("Group", "Files", "Head", "Interface", "Rule")
    body["Resources"]["Files"]["DependsOn"] = ["Rule", "Interface"]
    assert order(body) == ("Group", "Rule", "Interface", "Files", "Head")


def test_the_own_variables_of_fn_sub_are_no_references():
    value = {"Fn::Sub": ["${Mine} ${Other}", {"Mine": {"Ref": "Third"}}]}
    assert set(references(value)) == {"Other", "Third"}


def test_a_dependency_circle_is_named():
    with pytest.raises(ValueError, match=r"\[A, B\]"):
        order(template(A={"DependsOn": "B"}, B={"DependsOn": "A"}))


def test_unresolved_references_are_listed():
    body = template(A={"Properties": {"X": {"Ref": "P"}, "Y": {"Ref": "Nope"}}})
    body["Parameters"] = {"P": {}}
    assert unresolved(body) == ("Nope",)
