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
        self._flops, self._peak, self._window = flops_per_sample, peak_flops, window
        self._since: float | None = None
        self._samples = 0
        self._paused = 0.0

    def step(self, at: float, samples: int) -> dict[str, float]:
        """Return the metrics of the window that this step ends, if any."""
        if self._since is None:  # the first step's time includes work before training
            self._since = at
            return {}
        self._samples += samples
        seconds = at - self._since - self._paused
        if seconds < self._window:
            return {}
        rate = self._samples / seconds
        self._since, self._samples, self._paused = at, 0, 0.0
        found = {"toolkit.samples_per_second": rate}
        if self._flops and self._peak:
            found["toolkit.mfu"] = rate * self._flops / self._peak
        return found

    def pause(self, seconds: float) -> None:
        """Note that training stood still for so many seconds."""
        self._paused += seconds
