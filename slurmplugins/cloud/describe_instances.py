"""A fast reader of DescribeInstances' answer. The engine needs a tenth of an instance's fields.

botocore builds every field of every instance. At 10,000 instances that takes ten seconds of CPU,
four times a minute. This reader takes a tenth of that. Its result has botocore's shape. If the XML
is not as expected, botocore reads it after all.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Tags = list[dict[str, str]]

_SHAPE: Final = "DescribeInstancesResult"

_OK: Final = 200
_ROOT: Final = b"DescribeInstancesResponse"
_EMPTY_ANSWER: Final = b"<%b/>" % _ROOT
"""The empty answer that botocore still parses."""

_UNUSED_ELEMENTS: Final = (
    b"networkInterfaceSet",
    b"blockDeviceMapping",
    b"metadataOptions",
    b"groupSet",
)
"""Elements that are half of the answer and never read. None contains another of its own name."""

_TAG_SET: Final = b"tagSet"
"""Tags are a third of the answer. Instances of one launch have the same; they are parsed once."""


def attach(client: Any) -> None:
    """Make this EC2 client use the fast reader. Safe to repeat.

    It wraps the endpoint's parsers. The event before-parse would be public, but Ubuntu 24.04's
    botocore (1.34.46) does not have it.
    """
    endpoint = client._endpoint  # noqa: SLF001
    factory = endpoint._response_parser_factory  # noqa: SLF001
    if not isinstance(factory, _FastParserFactory):
        endpoint._response_parser_factory = _FastParserFactory(factory)  # noqa: SLF001


class _FastParserFactory:
    """botocore's factory of parsers, each with the fast reader before it."""

    def __init__(self, factory: Any) -> None:
        self._factory = factory

    def create_parser(self, protocol: str) -> _FastParser:
        return _FastParser(self._factory.create_parser(protocol))


class _FastParser:
    """botocore's parser, which gets an empty answer where the fast reader has read it."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def parse(self, response: dict[str, Any], shape: Any) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        if shape is not None and shape.name == _SHAPE:
            _use_fast_reader(response, answer)
        parsed: dict[str, Any] = self._parser.parse(response, shape)
        return parsed | answer


def _use_fast_reader(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any]
) -> None:
    if response_dict.get("status_code") != _OK:
        return
    try:
        answer = read(response_dict["body"])
    except (ET.ParseError, ValueError, TypeError, KeyError, IndexError):
        return
    customized_response_dict.update(answer)
    response_dict["body"] = _EMPTY_ANSWER


def read(body: bytes) -> dict[str, Any]:
    """Return the answer in botocore's shape, with the fields of READ only.

    Raises ParseError, ValueError, TypeError, KeyError or IndexError if the XML is not as EC2
    writes it.
    """
    if b"<![CDATA[" in body or b"<!--" in body:  # in these, a value could look like an element
        raise ValueError("not as EC2 writes it")
    for name in _UNUSED_ELEMENTS:
        body = _remove_elements(body, name)
    body, tag_sets = _number_contents(body, _TAG_SET)
    tags = [_tags(item) for item in tag_sets]
    # Without the namespace an element's name is its tag: no cost for each of a million.
    body = body.replace(b"<%b xmlns=" % _ROOT, b"<%b ns=" % _ROOT, 1)
    root = ET.fromstring(body)  # noqa: S314 - EC2's own answer, over TLS; expat bounds entities
    if root.tag != _ROOT.decode():
        raise ValueError(root.tag)
    answer: dict[str, Any] = {"Reservations": []}
    for child in root:
        if child.tag == "nextToken" and child.text:
            answer["NextToken"] = child.text
        elif child.tag == "reservationSet":
            answer["Reservations"] = [_reservation(item, tags) for item in child]
    return answer


def _remove_elements(body: bytes, name: bytes) -> bytes:
    """Return the text without these elements.

    A value can't look like such an element: in a value, `<` is an entity.
    """
    first, *rest = body.split(b"<%b>" % name)
    return b"".join([first, *(part.partition(b"</%b>" % name)[2] for part in rest)])


def _number_contents(body: bytes, name: bytes) -> tuple[bytes, list[bytes]]:
    """Replace the content of these elements by numbers.

    Returns the text, and the contents by number. Equal contents have the same number.
    """
    first, *rest = body.split(b"<%b>" % name)
    numbers: dict[bytes, int] = {}
    parts = [first]
    for part in rest:
        inner, _, after = part.partition(b"</%b>" % name)
        number = numbers.setdefault(inner, len(numbers))
        parts.append(b"<%b>%d</%b>%b" % (name, number, name, after))
    return b"".join(parts), list(numbers)


def _reservation(element: ET.Element, tags: Sequence[_Tags]) -> dict[str, Any]:
    instances_set = element.find("instancesSet")
    return {
        "Instances": []
        if instances_set is None
        else [_instance(item, tags) for item in instances_set]
    }


def _instance(element: ET.Element, tags: Sequence[_Tags]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for child in element:
        if (entry := _FIELDS.get(child.tag)) is not None:
            name, reader = entry
            if (value := reader(child)) is not None:
                fields[name] = value
    if "Tags" in fields:
        fields["Tags"] = tags[fields["Tags"]]
    return fields


def _text(element: ET.Element) -> str | None:
    return element.text


def _number(element: ET.Element) -> int:
    return int(element.text or 0)


def _time(element: ET.Element) -> datetime:
    return datetime.fromisoformat(element.text or "")


def _tags(inner: bytes) -> _Tags:
    element = ET.fromstring(b"<tagSet>%b</tagSet>" % inner)  # noqa: S314 - a part of EC2's own answer
    return [
        {"Key": item.findtext("key", ""), "Value": item.findtext("value", "")} for item in element
    ]


def _number_of_tags(element: ET.Element) -> int | None:
    """Return the number that `_number_contents` left in place of the tags.

    Raises ValueError if tags are left there: EC2 does not write them like that.
    """
    if len(element):
        raise ValueError("tags that were not taken out")
    return int(element.text) if element.text else None


def _child_reader(name: str, key: str) -> Callable[[ET.Element], dict[str, str]]:
    """Return a reader of one child, under botocore's name for it."""

    def reader(element: ET.Element) -> dict[str, str]:
        text = element.findtext(name)
        return {} if text is None else {key: text}

    return reader


_FIELDS: Final[dict[str, tuple[str, Callable[[ET.Element], Any]]]] = {
    "amiLaunchIndex": ("AmiLaunchIndex", _number),
    "instanceId": ("InstanceId", _text),
    "instanceLifecycle": ("InstanceLifecycle", _text),
    "instanceState": ("State", _child_reader("name", "Name")),
    "instanceType": ("InstanceType", _text),
    "launchTime": ("LaunchTime", _time),
    "placement": ("Placement", _child_reader("availabilityZone", "AvailabilityZone")),
    "privateIpAddress": ("PrivateIpAddress", _text),
    "reason": ("StateTransitionReason", _text),
    "stateReason": ("StateReason", _child_reader("code", "Code")),
    "tagSet": ("Tags", _number_of_tags),
}

READ_FIELDS: Final = frozenset(name for name, _ in _FIELDS.values())
"""The fields of an instance that this reader returns; `ec2_messages.instance` may use no other."""
