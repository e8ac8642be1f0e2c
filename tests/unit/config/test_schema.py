"""The JSON schema that editors use."""

from toolkit.config import ClusterConfig, json_schema


def test_the_schema_knows_every_key():
    """An editor completes what the model takes, and marks what it refuses."""
    schema = json_schema()
    assert set(schema["properties"]) == set(ClusterConfig.model_fields)
    assert schema["additionalProperties"] is False


def test_the_schema_says_what_must_be_there():
    """Required keys are the ones without a sound default."""
    required = {"cluster", "aws", "network", "pools", "partitions"}
    assert set(json_schema()["required"]) == required


def test_the_schema_says_of_a_field_what_stands_below_it():
    """An editor shows it beside the key."""
    network = json_schema()["$defs"]["Network"]["properties"]
    assert network["nat_subnet"]["description"] == "A NAT gateway exists only with it."
