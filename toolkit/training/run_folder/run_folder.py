"""Name the files in a run's folder, and keep the few facts of the run.

Every attempt finds there the files of the attempts before it.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolkit.training.io.durable_files import (
    encode,
    find_json,
    read_twice,
    there,
    write_atomic,
    write_first,
)
from toolkit.training.run_folder.checkpoint_names import last_step
from toolkit.training.sample_order import SampleOrder


class RunDir:
    """The paths in a run's folder, and the facts that no attempt may change.

    `put` writes the facts: only the run's owner may.
    """

    def __init__(self, path: Path, put: Callable[[Path, bytes], None] = write_atomic) -> None:
        self.path, self._put = path, put
        self.checkpoints = path / "checkpoints"
        self.steps = path / "steps.jsonl"
        self.attempts = path / "attempts.jsonl"
        self.times = path / "times.jsonl"
        self.result = path / "result.json"
        self._facts = path / "run.json"

    def create(self) -> None:
        """Make the folder and give the run its key.

        Safe to repeat: the key of an earlier attempt stays.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if not there(self._facts):
            write_first(self._facts, encode({"key": uuid.uuid4().hex}))

    @property
    def key(self) -> str:
        """Return the name of this run outside its folder.

        No other run has it, also when job ids start anew.
        """
        return str(self.facts()["key"])

    def facts(self) -> Mapping[str, Any]:
        """Return the noted facts, none when no `Run` was here.

        Raises OSError when they can't be read now.
        """
        return find_json(self._facts) or {}

    @property
    def counts_steps(self) -> bool:
        """Return whether a `Run` was ever here.

        Without one, nothing tells how far the training is.
        """
        return bool(self.facts())

    def agree_order(self, order: SampleOrder, epochs: int) -> None:
        """Note the order of samples, or check that it is the run's.

        A position counts samples of one fixed order. With another size or seed it would point at
        other samples, and the run would train on some twice and on some never. With another global
        batch the remaining steps would not be those that the run began with. Raises ValueError
        then.

        The number of epochs may change. Before the first checkpoint the global batch may too.
        """
        wanted = {"size": order.size, "seed": order.seed, "global_batch": order.global_batch}
        facts = json.loads(read_twice(self._facts, Path.read_bytes))
        begun = dict(facts.get("order") or wanted)
        begun.setdefault("global_batch", order.global_batch)  # older runs did not note it
        other = {name for name, value in wanted.items() if begun.get(name) != value}
        if other and (other != {"global_batch"} or self._has_saved()):
            raise ValueError(f"the run in {self.path} began with {begun}, not with {wanted}")
        noted = {"order": wanted, "epochs": epochs}  # training longer, or shorter, is fine
        if facts | noted != facts:
            self._put(self._facts, encode(facts | noted))

    def _has_saved(self) -> bool:
        """Return whether the run has a checkpoint.

        Before the first one, a trainer's own batch may follow the number of ranks.
        """
        return last_step(self.checkpoints) is not None
