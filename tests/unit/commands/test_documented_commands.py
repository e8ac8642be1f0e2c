"""Every `toolkit` command in the documents exists, with its options."""

import re
from pathlib import Path

import click
import pytest

from toolkit import cli

ROOT = Path(__file__).parents[3]
TEXTS = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
CALL = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?toolkit +(.*)$")
END = re.compile(r"\s*(?:#| -- |&&|;|\||>).*$")


def calls(path):
    """Return the words after `toolkit` of each command in a document's code."""
    text = path.read_text(encoding="utf-8")
    lines = [line for block in FENCED.findall(text) for line in block.splitlines()]
    lines += CODE.findall(FENCED.sub("", text))
    lines = [part for line in lines for part in line.split("&& ")]
    for line in lines:
        if match := CALL.match(line.strip()):
            yield END.sub("", f" {match[1]}").split()


DOCUMENTED = sorted({(path.name, *words) for path in TEXTS for words in calls(path)})


def without_brackets(word):
    """Strip the brackets of a synopsis from a word."""
    return word.strip("[]().,…")


@pytest.mark.parametrize("documented", DOCUMENTED, ids=" ".join)
def test_a_documented_command_exists_with_its_options(documented):
    command, context = cli.cli, click.Context(cli.cli)
    words = [without_brackets(word) for word in documented[1:]]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        command = command.get_command(context, name)
        assert command is not None, f"no command {name}"
    known = {name for param in command.get_params(context) for name in param.opts}
    known |= {name for param in command.get_params(context) for name in param.secondary_opts}
    passes_on = command.context_settings.get("ignore_unknown_options", False)
    for word in words:
        if word.startswith("-") and not passes_on:
            assert word.split("=")[0] in known, word


def test_the_documents_contain_commands():
    """Find commands in code blocks and in sentences."""
    assert len(DOCUMENTED) > 60
    assert sum(name == "README.md" for name, *_ in DOCUMENTED) >= 8
    assert ("README.md", "local", "interrupt", "gpu-001") in DOCUMENTED
    assert ("operations.md", "reconcile", "--plan") in DOCUMENTED
