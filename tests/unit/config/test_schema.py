"""The JSON schema that editors use."""

from toolkit.config import ClusterConfig, json_schema


def test_the_schema_has_every_key():
    """An editor completes what the model takes, and marks what it refuses."""
    schema = json_schema()
    assert set(schema["properties"]) == set(ClusterConfig.model_fields)
    assert schema["additionalProperties"] is False


def test_the_schema_requires_the_keys_without_a_default():
    """Required keys are the ones without a sound default."""
    required = {"cluster", "aws", "network", "pools", "partitions"}
    assert set(json_schema()["required"]) == required


def test_the_schema_describes_fields():
    """An editor shows it beside the key."""
    network = json_schema()["$defs"]["Network"]["properties"]
    assert network["nat_subnet"]["description"] == "A NAT gateway exists only with it."
