"""Measure how fast a run trains: samples a second, and the share of the hardware's peak."""


class Throughput:
    """A meter that takes every step, and reports once a window.

    Time in which training stood still does not count. `window` is in seconds.
    """

    def __init__(
        self,
        *,
        flops_per_sample: float | None = None,
        peak_flops: float | None = None,
        window: float = 10.0,
    ) -> None:
        self._flops_per_sample, self._peak_flops = flops_per_sample, peak_flops
        self._window = window
        self._window_start: float | None = None
        self._samples = 0
        self._paused = 0.0

    def step(self, at: float, samples: int) -> dict[str, float]:
        """Return the metrics of the window that this step ends, if any."""
        if self._window_start is None:  # the first step's time includes work before training
            self._window_start = at
            return {}
        self._samples += samples
        seconds = at - self._window_start - self._paused
        if seconds < self._window:
            return {}
        rate = self._samples / seconds
        self._window_start, self._samples, self._paused = at, 0, 0.0
        metrics = {"toolkit.samples_per_second": rate}
        if self._flops_per_sample and self._peak_flops:
            metrics["toolkit.mfu"] = rate * self._flops_per_sample / self._peak_flops
        return metrics

    def pause(self, seconds: float) -> None:
        """Note that training stood still for so many seconds."""
        self._paused += seconds
