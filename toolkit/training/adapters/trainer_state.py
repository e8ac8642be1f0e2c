"""Hold a checkpoint's parts for objects that a trainer makes long after the load."""

from collections.abc import Callable, Mapping
from typing import Any

from toolkit.training.checkpoint.torch_codec import capture_rng, restore_rng
from toolkit.training.errors import Unsupported


class Slot:
    """A part whose object comes later. The loaded state waits for it."""

    def __init__(self, target: Any = None) -> None:
        self._target = target
        self.loaded: Any = None

    def set_target(self, target: Any) -> None:
        """Give the object the loaded state, and save it from now on."""
        self._target = target
        loaded, self.loaded = self.loaded, None
        if loaded is not None:
            target.load_state_dict(loaded)

    def state_dict(self) -> Any:
        return self._target.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.loaded = state


class TrainingRng:
    """A keeper of training's random state, apart from that of evaluation.

    A run may stop during an evaluation, or resume after it. It then goes on with the same
    numbers as a run that did not stop.
    """

    def __init__(self) -> None:
        self._captured: dict[str, Any] | None = None

    def capture(self) -> None:
        self._captured = capture_rng()

    def restore(self) -> None:
        if self._captured is not None:
            restore_rng(self._captured)

    def with_training_rng(self, check: Callable[[], None]) -> None:
        """Call `check` with training's random numbers in place.

        `check` may save, and may leave the run.
        """
        if self._captured is None:
            check()
            return
        evaluation_rng = capture_rng()
        restore_rng(self._captured)
        check()
        restore_rng(evaluation_rng)


def plain_data(value: Any, name: str) -> Any:
    """Return the state as nothing but data.

    A checkpoint gives back nothing else. Raises Unsupported with the name of a value that is no
    data: better at the first save than at the load.
    """
    import torch

    if value is None or isinstance(value, bool | int | float | str | bytes):
        # A subclass (numpy's float64, an enum of strings) would be pickled by its own class.
        kind = next((k for k in (bool, int, float, str, bytes) if isinstance(value, k)), None)
        return kind(value) if kind else None  # type: ignore[arg-type]  # kind is the value's own
    if isinstance(value, torch.Tensor | torch.dtype | torch.device):
        return value
    if isinstance(value, Mapping):
        return {
            plain_data(key, name): plain_data(item, f"{name}.{key}") for key, item in value.items()
        }
    if isinstance(value, list | tuple | set):
        items = [plain_data(item, f"{name}[{number}]") for number, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    raise Unsupported(
        f"{name} in the trainer's state is a {type(value).__name__}: a checkpoint holds only data",
        next_step="keep it out of hyperparameters and state_dict, or turn it into text or numbers",
    )
