"""The JSON schema that editors use."""

from toolkit.config import ClusterConfig, json_schema


def test_the_schema_has_every_key():
    """Describe every key of the model, so that an editor completes it."""
    schema = json_schema()
    assert set(schema["properties"]) == set(ClusterConfig.model_fields)
    assert schema["additionalProperties"] is False


def test_the_schema_requires_the_keys_without_a_default():
    """Require exactly the keys that have no default."""
    required = {"cluster", "aws", "network", "pools", "partitions"}
    assert set(json_schema()["required"]) == required


def test_the_schema_describes_fields():
    """Describe each field, because an editor shows the text beside the key."""
    network = json_schema()["$defs"]["Network"]["properties"]
    assert network["nat_subnet"]["description"] == "A NAT gateway exists only with it."
