"""Read a run whose attempts had several filesystems, and so several run folders.

An attempt on the site's racks and one in the cloud meet in a tier alone (`checkpoint.tier`). Each
folder numbers its own attempts from 0. Here they are numbered in the order of their starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from toolkit.training.run_folder import steps as steps_file
from toolkit.training.run_folder.attempts import AttemptRecord, AttemptsFile
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.run_folder.steps import History


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The attempts and the step log of a run, over all of its folders."""

    attempts: tuple[AttemptRecord, ...]
    history: History


def read(folders: Sequence[RunFolder]) -> RunRecords:
    """Return the records of one run, in one folder or several."""
    if len(folders) == 1:
        return RunRecords(
            AttemptsFile(folders[0].attempts).attempts(), steps_file.read(folders[0].steps)
        )
    attempts = sorted(
        (
            (record.started_at, place, record)
            for place, folder in enumerate(folders)
            for record in AttemptsFile(folder.attempts).attempts()
        ),
        key=lambda item: item[:2],
    )
    numbers = {
        (place, record.attempt): number for number, (_, place, record) in enumerate(attempts)
    }
    torn_lines, entries = 0, []
    for place, folder in enumerate(folders):
        for entry in steps_file.read_entries(folder.steps):
            number = numbers.get((place, entry.attempt)) if entry else None
            if entry is None or number is None:
                torn_lines += 1
            else:
                entries.append(replace(entry, attempt=number))
    entries.sort(key=lambda entry: entry.attempt)
    return RunRecords(
        tuple(replace(record, attempt=number) for number, (*_, record) in enumerate(attempts)),
        replace(steps_file.apply(entries), torn_lines=torn_lines),
    )
