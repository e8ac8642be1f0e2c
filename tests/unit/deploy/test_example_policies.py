"""The IAM policies in examples/iam, as text."""

import json

import pytest

from tests.unit.deploy.samples import ROOT, example
from toolkit.deploy import names
from toolkit.local.aws.iam import policy

FILES = sorted((ROOT / "examples" / "iam").glob("*.json"))
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
MANAGED_POLICY = 6144


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_policy_fits_into_a_managed_policy_and_can_be_judged(path):
    """Count as IAM does, without white space."""
    document = json.loads(path.read_text())
    assert len(json.dumps(document, separators=(",", ":"))) <= MANAGED_POLICY
    assert policy.read(path.stem, document)


def test_there_is_one_for_each_kind_of_person():
    assert [path.stem for path in FILES] == ["admin", "operator", "reader"]


def test_the_reader_may_use_the_readers_document_and_no_shell():
    """Name the document as the stack of examples/aws.yaml does."""
    text = (ROOT / "examples" / "iam" / "reader.json").read_text()
    assert f"document/{names.read_document(example('aws'))}" in text
    assert "RunShellScript" not in text
    assert "StartSession" not in text
