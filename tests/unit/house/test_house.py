"""The figures about the code, and the limits on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import docstrings, imports

ROOT = Path(__file__).resolve().parents[3]
HERE = Path("here.py")


def docstring_of(text: str) -> docstrings.Docstring:
    (docstring,) = docstrings.docstrings(HERE, f'def f():\n    """{text}"""\n')
    return docstring


@pytest.mark.parametrize("text", ["What it was.", "Of two nodes, the first.", "`which` is it?"])
def test_a_docstring_that_opens_with_a_question_word_or_preposition_opens_badly(text: str):
    assert docstring_of(text).opens_badly


@pytest.mark.parametrize("text", ["Return what it was.", "A node.", "Whence"])
def test_a_docstring_that_opens_with_a_verb_or_a_noun_opens_well(text: str):
    assert not docstring_of(text).opens_badly


def test_long_first_lines_and_long_sentences_are_counted():
    assert not docstring_of("word " * 11 + "word").opens_long
    assert docstring_of("word " * 13).opens_long
    assert docstring_of("Short one. " + "word " * 26 + "end.").long_sentences == 1
    assert docstring_of("Short one. " + "word\n" * 24 + "end.").long_sentences == 0
    (module,) = docstrings.docstrings(HERE, '"""' + "word " * 13 + '"""')
    assert not module.opens_long


def test_modules_that_import_each_other_form_a_circle():
    graph = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": [], "e": ["a"]}
    assert imports.circles(graph) == [frozenset({"b", "c"})]


def test_the_product_has_no_import_circles():
    read = imports.graph_of("slurmplugins", "toolkit")
    assert imports.circles(imports.imports_of(read)) == []


@pytest.mark.parametrize("folder", ["slurmplugins", "toolkit", "jobscripts", "tests"])
def test_docstrings_open_well_in_short_sentences(folder: str):
    judged = [
        docstring
        for path in sorted((ROOT / folder).rglob("*.py"))
        for docstring in docstrings.docstrings(path, path.read_text())
    ]
    assert judged
    assert not [
        f"{docstring.path}:{docstring.line}: {docstring.first_line}"
        for docstring in judged
        if docstring.opens_badly or docstring.opens_long or docstring.long_sentences
    ]
