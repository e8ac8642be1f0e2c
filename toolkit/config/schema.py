"""The JSON Schema of cluster.yaml; editors complete and check the file by it."""

from __future__ import annotations

from typing import Any

from toolkit.config.model import ClusterConfig


def json_schema() -> dict[str, Any]:
    """Return the schema as a JSON-serialisable dict."""
    schema = ClusterConfig.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "cluster.yaml",
    }
