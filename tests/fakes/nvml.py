"""NVML, the library of NVIDIA's driver, as nvidia-ml-py calls it.

Its functions are C functions, with errors by number.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

DRIVER_NOT_LOADED, NOT_SUPPORTED = 9, 3


class Driver:
    """A driver with GPUs: percent in use, bytes used, bytes in all.

    `refuses` maps a function's name to the error number that it returns.
    """

    def __init__(self, *gpus: tuple[int, int, int], refuses: dict[str, int] | None = None) -> None:
        self.gpus, self.refuses = gpus, refuses or {}
        self._handles: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if code := self.refuses.get(name):
                return code
            getattr(self, f"_{name.removeprefix('nvml').removesuffix('_v2')}")(*arguments)
            return 0

        if not name.startswith("nvml"):
            raise AttributeError(name)
        return call

    def _InitWithFlags(self, flags: int) -> None:  # noqa: N802  # the library's own name
        assert flags == 0

    def _DeviceGetCount(self, count: Any) -> None:  # noqa: N802
        count._obj.value = len(self.gpus)

    def _DeviceGetHandleByIndex(self, index: ctypes.c_uint, handle: Any) -> None:  # noqa: N802
        self._handles[ctypes.addressof(handle._obj)] = index.value

    def _DeviceGetMemoryInfo(self, handle: Any, memory: Any) -> None:  # noqa: N802
        _, memory._obj.used, memory._obj.total = self._gpu(handle)

    def _DeviceGetUtilizationRates(self, handle: Any, rates: Any) -> None:  # noqa: N802
        rates._obj.gpu, _, _ = self._gpu(handle)

    def _gpu(self, handle: Any) -> tuple[int, int, int]:
        return self.gpus[self._handles[ctypes.addressof(handle)]]


def install(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    """Let nvidia-ml-py load this driver instead of the real library."""
    import pynvml

    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
