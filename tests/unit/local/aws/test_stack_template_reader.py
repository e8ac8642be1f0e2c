import pytest

from toolkit.local.aws.stack_template_reader import read

TEMPLATE = """
Resources:
  Head:
    Type: AWS::EC2::Instance
    Properties:
      SubnetId: !Ref Subnet
      Key: !GetAtt Role.Arn
      UserData: !Base64 text
      Name: !Sub "${AWS::StackName}-head"
      Zone: !Select [0, [a, b]]
"""


def test_short_forms_are_read_as_their_functions():
    assert read(TEMPLATE)["Resources"]["Head"]["Properties"] == {
        "SubnetId": {"Ref": "Subnet"},
        "Key": {"Fn::GetAtt": ["Role", "Arn"]},
        "UserData": {"Fn::Base64": "text"},
        "Name": {"Fn::Sub": "${AWS::StackName}-head"},
        "Zone": {"Fn::Select": [0, ["a", "b"]]},
    }


def test_a_reader_changes_its_own_objects_alone():
    """Change what was read and read the same text again."""
    read(TEMPLATE)["Resources"]["Head"]["Properties"].clear()
    assert read(TEMPLATE)["Resources"]["Head"]["Properties"]


def test_json_is_read_also_where_it_is_no_yaml():
    assert read('{\t"Resources": {}}') == {"Resources": {}}


def test_what_is_neither_yaml_nor_json_is_an_error():
    with pytest.raises(ValueError, match="Expecting value"):
        read("Resources: [")
