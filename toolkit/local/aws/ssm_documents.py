"""Command documents of the account's own, for Run Command: what their parameters make of them.

Source: Systems Manager User Guide, "Data elements and parameters" of documents, schema version 1.2.
The local cloud runs shell scripts, and no other action.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from moto.core.exceptions import JsonRESTError
from moto.ssm.models import ssm_backends

from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHELL_ACTION: Final = "aws:runShellScript"
_PLACE: Final = re.compile(r"\{\{ *([A-Za-z0-9_]+) *\}\}")


def shell_parameters(
    region: str, name: str, given: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the parameters with which AWS-RunShellScript does what a document says.

    Raises SSM's errors for an unknown document, and for parameters that it does not take.
    """
    documents = ssm_backends[ACCOUNT][region]._documents.get(name)  # noqa: SLF001 - no other way
    content = documents.get_default_version().content_json if documents else {}
    properties = content.get("runtimeConfig", {}).get(SHELL_ACTION, {}).get("properties")
    if not properties:
        raise JsonRESTError("InvalidDocument", f"The local cloud can't run a document {name}")
    values = _values(content.get("parameters") or {}, given)
    script = properties[0]
    return {
        "commands": [_filled(line, values) for line in script["runCommand"]],
        "executionTimeout": [_filled(str(script.get("timeoutSeconds", "3600")), values)],
    }


def _values(declared: Mapping[str, Any], given: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return each parameter's value. Raises InvalidParameters as SSM does."""
    unknown = set(given) - set(declared)
    if unknown:
        raise JsonRESTError("InvalidParameters", f"Unknown parameters {sorted(unknown)}")
    values = {}
    for name, rules in declared.items():
        value = str(given[name][0]) if given.get(name) else rules.get("default")
        pattern = rules.get("allowedPattern")
        if value is None:
            raise JsonRESTError("InvalidParameters", f"Parameter {name} is missing")
        if pattern and re.fullmatch(pattern, value) is None:
            raise JsonRESTError("InvalidParameters", f"Parameter {name} does not fit {pattern}")
        values[name] = value
    return values


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda match: values[match[1]], text)
