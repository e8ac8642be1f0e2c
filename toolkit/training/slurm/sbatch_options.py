"""Parse sbatch's command line, as sbatch(1) defines it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SHORT: Final = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint",
    "c": "cpus-per-task", "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile",
    "G": "gpus", "H": "hold", "h": "help", "i": "input", "J": "job-name", "k": "no-kill",
    "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks",
    "O": "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos",
    "S": "core-spec", "s": "oversubscribe", "t": "time", "V": "version", "v": "verbose",
    "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
# Options that take no value, or one after "=" only.
_FLAGS: Final = frozenset({
    "contiguous", "exclusive", "get-user-env", "help", "hold", "ignore-pbs", "nice", "no-kill",
    "no-requeue", "oom-kill-step", "overcommit", "oversubscribe", "parsable", "propagate", "quiet",
    "reboot", "requeue", "resv-ports", "spread-job", "stepmgr", "test-only", "usage",
    "use-min-nodes", "verbose", "version", "wait",
})  # fmt: skip
# Options of the moment of submission, such as when to start: a copy of the job must not have them.
_NOT_REPEATABLE: Final = frozenset({
    "array", "begin", "chdir", "deadline", "dependency", "hold", "parsable", "quiet", "test-only",
    "verbose", "wait",
})  # fmt: skip


def options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options among words by their long names, with their values.

    The value is "" for an option without one.
    """
    index = 0
    while index < len(words):
        name, value, word_count = _option(words, index)
        index += word_count
        if name:
            yield name, value


def repeatable(line: str, arguments: Sequence[str]) -> tuple[str, ...] | None:
    """Return the options of a submit line that make the job again.

    They are copied word for word. `line` is sacct's SubmitLine: the words joined by one space each,
    without quotes. `arguments` are the script's own. None when the line can be read in two ways, as
    with a value of two words.
    """
    script_arguments = "".join(f" {argument}" for argument in arguments)
    if not line.endswith(script_arguments):
        return None
    words = line[: len(line) - len(script_arguments)].split(" ")
    kept_words: list[str] = []
    index = 1
    while index < len(words) and words[index].startswith("-"):
        name, _, word_count = _option(words, index)
        if not name:
            return None
        if name not in _NOT_REPEATABLE:
            kept_words += words[index : index + word_count]
        index += word_count
    return tuple(kept_words) if index == len(words) - 1 else None


def _option(words: Sequence[str], index: int) -> tuple[str, str, int]:
    """Return an option's name, its value, and its number of words.

    The name is "" when there is no option at that place.
    """
    word = words[index]
    if word.startswith("--"):
        name, separator, value = word[2:].partition("=")
        may_take_next = not separator and name not in _FLAGS and index + 1 < len(words)
        if may_take_next and not words[index + 1].startswith("-"):
            return name, words[index + 1], 2
        return name, value, 1
    if not word.startswith("-") or word[1:2] not in _SHORT:
        return "", "", 1
    name, value = _SHORT[word[1]], word[2:].removeprefix("=")
    if not value and name not in _FLAGS and index + 1 < len(words):
        return name, words[index + 1], 2
    return name, value, 1
