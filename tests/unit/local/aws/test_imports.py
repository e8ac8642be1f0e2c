"""Imports that the local cloud spares itself."""

import importlib

import pytest

from toolkit.local import aws


def test_grammars_of_addresses_are_not_built_for_moto():
    """Refuse the import, as if the package were absent."""
    assert aws
    with pytest.raises(ImportError):
        importlib.import_module("rfc3987_syntax")
