"""The JSON schema that editors use."""

from pydantic import TypeAdapter

from toolkit.config import ClusterConfig, json_schema
from toolkit.config.section import Section


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


class _Base(Section):
    """A section with a described field."""

    first: int = 1
    """Its own words,
    on two lines.
    """


class _More(_Base):
    """A section that inherits it."""

    second: int = 2
    third: int = 3
    """A third field."""


def test_a_section_describes_inherited_fields_too():
    """Take the string below a field, whichever class has it."""
    properties = TypeAdapter(_More).json_schema()["properties"]
    assert {name: item.get("description") for name, item in properties.items()} == {
        "first": "Its own words,\non two lines.",
        "second": None,
        "third": "A third field.",
    }
