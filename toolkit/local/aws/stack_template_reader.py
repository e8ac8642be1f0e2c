"""The text of a CloudFormation template, read once for the many who ask.

moto reads one template with PyYAML's Python parser up to seven times in a deploy, 0.1 s each.
"""

from __future__ import annotations

import copy
import functools
import json
from typing import TYPE_CHECKING, Any

import yaml
from moto.cloudformation.models import ChangeSet, Stack
from moto.cloudformation.utils import yaml_tag_constructor
from yaml.parser import ParserError
from yaml.scanner import ScannerError

if TYPE_CHECKING:
    from toolkit.local.aws.moto_patches import Patches


class _Loader(yaml.CSafeLoader):  # type: ignore[misc]  # untyped
    """The parser of libyaml, with the short forms of CloudFormation's functions."""


_Loader.add_multi_constructor("", yaml_tag_constructor)  # !Ref, !GetAtt and so on


def install(patches: Patches) -> None:
    """Have stacks and change sets read templates here."""

    def read_own(change_set: Any) -> None:
        change_set.template_dict = read(change_set.template)

    patches.replace(Stack, "parse_template", staticmethod(read))
    patches.replace(ChangeSet, "_parse_template", read_own)


def read(template: str) -> Any:
    """Return a template as objects, which are the caller's own. Raises ValueError."""
    return copy.deepcopy(_read(template))


# A change set, its review and its execution read the same two templates.
@functools.lru_cache(maxsize=4)
def _read(template: str) -> Any:
    try:
        return yaml.load(template, Loader=_Loader)  # noqa: S506 - a CSafeLoader
    except (ParserError, ScannerError):
        return json.loads(template)
