"""The CPU as a verl platform.

verl loads this module in every process (driver and Ray workers) through the entry point group ``verl.plugins``. It does
nothing unless ``VERL_PLATFORM=cpu``, so that it can stay installed on a machine that trains on GPUs.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


def register() -> None:
    """Register the platform ``cpu`` with verl's PlatformRegistry."""
    import torch
    from verl.plugin.platform import PlatformBase, PlatformRegistry

    class CpuDevice(ModuleType):
        """``torch.cpu`` plus the memory and random-state calls that verl makes on ``torch.<device>``."""

        get_rng_state = staticmethod(torch.get_rng_state)
        set_rng_state = staticmethod(torch.set_rng_state)
        manual_seed = staticmethod(torch.manual_seed)
        manual_seed_all = staticmethod(torch.manual_seed)

        def __getattr__(self, name: str) -> Any:
            return getattr(torch.cpu, name)

        def is_available(self) -> bool:
            return True

        def device_count(self) -> int:
            return 1

        def get_device_name(self, *_: Any) -> str:
            return "CPU"

        def set_device(self, *_: Any) -> None: ...

        def synchronize(self, *_: Any) -> None: ...

        def empty_cache(self) -> None: ...

        def reset_peak_memory_stats(self, *_: Any) -> None: ...

        def max_memory_allocated(self, *_: Any) -> int:
            """Peak resident memory of this process in bytes."""
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

        max_memory_reserved = memory_allocated = memory_reserved = max_memory_allocated

        def mem_get_info(self, *_: Any) -> tuple[int, int]:
            import psutil

            memory = psutil.virtual_memory()
            return memory.available, memory.total

    @PlatformRegistry.register(platform="cpu")
    class CpuPlatform(PlatformBase):  # type: ignore[misc]
        device_name = "cpu"
        vendor_name = "cpu"
        device_module = CpuDevice("leyden_cpu_device")

        def is_available(self) -> bool:
            return True

        def is_platform_available(self, use_smi_check: bool = False) -> bool:
            return False  # never picked by detection: only by VERL_PLATFORM=cpu

        def current_device(self) -> torch.device:
            return torch.device("cpu")  # verl calls tensor.to() with it; an integer would mean a CUDA device

        def device_count(self) -> int:
            return 1

        def set_device(self, device_index: int) -> None: ...

        def synchronize(self, device_index: int | None = None) -> None: ...

        def manual_seed(self, seed: int) -> None:
            torch.manual_seed(seed)

        def manual_seed_all(self, seed: int) -> None:
            torch.manual_seed(seed)

        def set_allocator_settings(self, settings: str) -> None: ...

        def empty_cache(self) -> None: ...

        def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
            return None, None

        def communication_backend_name(self) -> str:
            return "gloo"

        def visible_devices_envvar(self) -> str:
            return "LEYDEN_CPU_VISIBLE_DEVICES"

        @contextmanager
        def nvtx_range(self, msg: str) -> Iterator[None]:
            yield

        def profiler_start(self) -> None: ...

        def profiler_stop(self) -> None: ...

        def ray_resource_name(self) -> str:
            return "CPU"

        def ray_resource_options(self, num_gpus: float) -> dict[str, Any]:
            return {}

        def ray_noset_envvars(self) -> list[str]:
            return []

        def is_ipc_supported(self) -> bool:
            return False

        def cudart(self) -> None:
            return None


if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    register()
