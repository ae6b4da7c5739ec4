"""The state of an NVIDIA GPU as NVML, the library behind nvidia-smi, reports it: clocks, heat, power, throttling.

Through ctypes on `libnvidia-ml.so.1`, so that nothing needs installing. Function names, enumerations and bits are those
of nvml.h (docs.nvidia.com/deploy/nvml-api). Whatever a driver doesn't answer is None.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

_SM, _MEMORY = 1, 2  # nvmlClockType_t
_TEMPERATURE_GPU = 0  # nvmlTemperatureSensors_t

REASONS = {
    0x001: "idle",
    0x002: "clocks set by the user",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal slowdown (software)",
    0x040: "thermal slowdown (hardware)",
    0x080: "power brake",
    0x100: "display clocks",
}
"""nvmlClocksThrottleReason* (since NVML 12 nvmlClocksEventReason*), each with the word for it."""
HARMLESS = {"idle", "clocks set by the user"}
"""An idle GPU lowers its clock and raises it under load (`marks` compares clocks for that); set clocks are wanted."""
IDLE_SHARE = 0.75
"""Below this share of the highest SM clock a GPU was not up to speed; NVBench discards samples below 75 %."""


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One reading; None where the driver doesn't answer. `throttle_bits`: the mask of NVML."""

    driver: str | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    throttle_bits: int | None = None
    mig_mode: bool | None = None
    persistence_mode: bool | None = None

    @property
    def throttle_reasons(self) -> tuple[str, ...]:
        """`throttle_bits` in words; a bit that isn't known shows as its number."""
        bits = self.throttle_bits or 0
        return tuple(REASONS.get(1 << i, f"bit {i}") for i in range(bits.bit_length()) if bits >> i & 1)


def gpu_state(uuid: str | None = None, bus_id: str | None = None, *, library: Any = None) -> GpuState | None:
    """The state of the GPU of this UUID or, where that isn't known, PCI bus id; of the first GPU if neither is given.

    uuid: as NVML writes it (`GPU-...`, `MIG-...`). bus_id: `domain:bus:device.0` in hexadecimal. None without NVML.
    Only the driver's version where NVML doesn't find the GPU.
    """
    if library is None:
        library = _library()
    if library is None:
        return None
    with _open(library) as opened:
        return _read(library, uuid, bus_id) if opened else None


def marks(before: GpuState | None, after: GpuState | None) -> list[str]:
    """What makes a measurement between two readings doubtful, in words: throttled, or not up to speed.

    Empty where nothing does, and without readings. The clock after the work decides whether it was up: before it, a GPU
    may idle.
    """
    found = []
    if before is not None and after is not None:
        reasons = {*before.throttle_reasons, *after.throttle_reasons} - HARMLESS
        found = [f"throttled: {reason}" for reason in sorted(reasons)]
        clock, highest = after.sm_clock_mhz, after.sm_clock_max_mhz
        # A clock that the user set is low on purpose, and one that is throttled is named already.
        if clock and highest and clock < IDLE_SHARE * highest and not found:
            fixed = "clocks set by the user" in after.throttle_reasons
            found.append(f"{'set' if fixed else 'idle'} clock: {clock} of {highest} MHz")
    return found


def torch_ids(properties: Any) -> tuple[str | None, str | None]:
    """UUID and PCI bus id, as NVML writes them, from the properties that torch gives of a device."""
    uuid = bus_id = None
    with suppress(AttributeError):
        text = str(properties.uuid)
        uuid = text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"
    with suppress(AttributeError):
        bus_id = f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    return uuid, bus_id


def _library() -> Any:
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None


@contextmanager
def _open(library: Any) -> Iterator[bool]:
    opened = library.nvmlInit_v2() == 0
    try:
        yield opened
    finally:
        if opened:
            library.nvmlShutdown()


def _read(library: Any, uuid: str | None, bus_id: str | None) -> GpuState:
    text = ctypes.create_string_buffer(96)
    answered = library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text))) == 0
    driver = text.value.decode() if answered else None
    device = _handle(library, uuid, bus_id)
    if device is None:
        return GpuState(driver=driver)

    def ask(function: str, *options: int, kind: Callable[[int], Any] = ctypes.c_uint, answers: int = 1) -> int | None:
        """The first of the values that `function` fills in."""
        values = [kind(0) for _ in range(answers)]
        with suppress(AttributeError):  # a function that this driver does not have
            pointers = (ctypes.byref(value) for value in values)
            if getattr(library, function)(device, *(ctypes.c_int(option) for option in options), *pointers) == 0:
                return int(values[0].value)
        return None

    bits = ask("nvmlDeviceGetCurrentClocksEventReasons", kind=ctypes.c_ulonglong)
    if bits is None:  # the name before NVML 12
        bits = ask("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong)
    mig, persistence = ask("nvmlDeviceGetMigMode", answers=2), ask("nvmlDeviceGetPersistenceMode")
    return GpuState(
        driver=driver,
        sm_clock_mhz=ask("nvmlDeviceGetClockInfo", _SM),
        memory_clock_mhz=ask("nvmlDeviceGetClockInfo", _MEMORY),
        sm_clock_max_mhz=ask("nvmlDeviceGetMaxClockInfo", _SM),
        memory_clock_max_mhz=ask("nvmlDeviceGetMaxClockInfo", _MEMORY),
        temperature_c=ask("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
        power_mw=ask("nvmlDeviceGetPowerUsage"),
        power_limit_mw=ask("nvmlDeviceGetEnforcedPowerLimit"),
        throttle_bits=bits,
        mig_mode=None if mig is None else bool(mig),
        persistence_mode=None if persistence is None else bool(persistence),
    )


def _handle(library: Any, uuid: str | None, bus_id: str | None) -> ctypes.c_void_p | None:
    """NVML numbers GPUs by bus and not as CUDA does, so a GPU is found by what it is."""
    handle = ctypes.c_void_p()
    pointer = ctypes.byref(handle)
    if uuid is not None and library.nvmlDeviceGetHandleByUUID(uuid.encode(), pointer) == 0:
        return handle
    if bus_id is not None and library.nvmlDeviceGetHandleByPciBusId_v2(bus_id.encode(), pointer) == 0:
        return handle
    if uuid is bus_id is None and library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(0), pointer) == 0:
        return handle
    return None
