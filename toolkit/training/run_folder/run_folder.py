"""Name the files in a run's folder, and keep the few facts of the run.

Every attempt finds there the files of the attempts before it.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolkit.training.io.durable_files import (
    encode_line,
    load_json,
    path_exists,
    read_twice,
    write_atomic,
    write_first,
)
from toolkit.training.run_folder.checkpoint_names import last_step
from toolkit.training.sample_order import SampleOrder


class RunFolder:
    """The paths in a run's folder, and the facts that no attempt may change.

    `write_file` writes the facts: only the attempt with the fence may.
    """

    def __init__(
        self, path: Path, write_file: Callable[[Path, bytes], None] = write_atomic
    ) -> None:
        self.path, self._write_file = path, write_file
        self.checkpoints = path / "checkpoints"
        self.steps = path / "steps.jsonl"
        self.attempts = path / "attempts.jsonl"
        self.times = path / "times.jsonl"
        self.result = path / "result.json"
        self._facts = path / "run.json"
        self.order: Mapping[str, int] | None = None  # as this process agreed on it

    def create(self) -> None:
        """Make the folder and give the run its key.

        Safe to repeat: the key of an earlier attempt stays.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if not path_exists(self._facts):
            write_first(self._facts, encode_line({"key": uuid.uuid4().hex}))

    @property
    def key(self) -> str:
        """Return the name of this run outside its folder.

        No other run has it, also when job ids start from 1 again.
        """
        return str(self.facts()["key"])

    def facts(self) -> Mapping[str, Any]:
        """Return the noted facts, none when no `Run` was here.

        Raises OSError when they can't be read now.
        """
        return load_json(self._facts) or {}

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
        order_facts = {"size": order.size, "seed": order.seed, "global_batch": order.global_batch}
        self.order = order_facts
        facts = json.loads(read_twice(self._facts, Path.read_bytes))
        first_order = dict(facts.get("order") or order_facts)
        first_order.setdefault("global_batch", order.global_batch)  # older runs did not note it
        changed_names = {
            name for name, value in order_facts.items() if first_order.get(name) != value
        }
        if changed_names and (changed_names != {"global_batch"} or self._has_saved()):
            raise ValueError(
                f"the run in {self.path} began with {first_order}, not with {order_facts}"
            )
        new_facts = {"order": order_facts, "epochs": epochs}  # training longer, or shorter, is fine
        if facts | new_facts != facts:
            self._write_file(self._facts, encode_line(facts | new_facts))

    def adopt_order(self, order: Mapping[str, int]) -> None:
        """Note the order of a checkpoint, unless the folder has one.

        The run may have begun on another filesystem, whose run.json is not here.
        """
        facts = json.loads(read_twice(self._facts, Path.read_bytes))
        if "order" not in facts:
            self._write_file(self._facts, encode_line(facts | {"order": dict(order)}))

    def _has_saved(self) -> bool:
        """Return whether the run has a checkpoint.

        Before the first one, a trainer's own batch may follow the number of ranks.
        """
        return last_step(self.checkpoints) is not None
