"""What NVML says of a GPU, through a stand-in for libnvidia-ml that checks how it is called."""

from __future__ import annotations

import ctypes
import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microbench import nvml
from microbench.nvml import GpuState, gpu_state, marks, torch_ids

BUSY = GpuState(
    driver="570.124.06",
    sm_clock_mhz=1965,
    memory_clock_mhz=2619,
    sm_clock_max_mhz=1980,
    memory_clock_max_mhz=2619,
    temperature_c=61,
    power_mw=412_345,
    power_limit_mw=700_000,
    throttle_bits=0,
    mig_mode=False,
    persistence_mode=True,
)


class FakeNvml:
    """Answers like libnvidia-ml for the one GPU of `state`; `missing` functions don't exist, as in an older driver.

    None in `state` is answered by an error.
    """

    def __init__(
        self,
        state: GpuState = BUSY,
        *,
        missing: tuple[str, ...] = (),
        uuid: bytes = b"GPU-1234",
        bus_id: bytes = b"00000000:3b:00.0",
        init: int = 0,
    ) -> None:
        self.state, self.missing, self.uuid, self.bus_id, self.init = state, missing, uuid, bus_id, init
        self.open = 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "missing"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def nvmlInit_v2(self) -> int:
        self.open += self.init == 0
        return self.init

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, length: Any) -> int:
        assert length.value == len(text)
        text.value = (self.state.driver or "").encode()
        return 0 if self.state.driver else 999

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        return self._hand(handle, uuid == self.uuid)

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus_id: bytes, handle: Any) -> int:
        return self._hand(handle, bus_id == self.bus_id)

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        return self._hand(handle, index.value == 0)

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: Any, answer: Any) -> int:
        return self._answer(
            handle, answer, {1: self.state.sm_clock_mhz, 2: self.state.memory_clock_mhz}[kind.value], ctypes.c_uint
        )

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: Any, answer: Any) -> int:
        highest = {1: self.state.sm_clock_max_mhz, 2: self.state.memory_clock_max_mhz}
        return self._answer(handle, answer, highest[kind.value], ctypes.c_uint)

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: Any, answer: Any) -> int:
        assert sensor.value == 0
        return self._answer(handle, answer, self.state.temperature_c, ctypes.c_uint)

    def nvmlDeviceGetPowerUsage(self, handle: Any, answer: Any) -> int:
        return self._answer(handle, answer, self.state.power_mw, ctypes.c_uint)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, answer: Any) -> int:
        return self._answer(handle, answer, self.state.power_limit_mw, ctypes.c_uint)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, answer: Any) -> int:
        return self._answer(handle, answer, self.state.throttle_bits, ctypes.c_ulonglong)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, answer: Any) -> int:
        return self._answer(handle, answer, self.state.throttle_bits, ctypes.c_ulonglong)

    def nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        pending._obj.value = 1  # what it will be after a reset
        return self._answer(handle, current, self.state.mig_mode, ctypes.c_uint)

    def nvmlDeviceGetPersistenceMode(self, handle: Any, answer: Any) -> int:
        return self._answer(handle, answer, self.state.persistence_mode, ctypes.c_uint)

    @staticmethod
    def _hand(handle: Any, found: bool) -> int:
        if found:
            handle._obj.value = 0xABC
        return 0 if found else 6

    @staticmethod
    def _answer(handle: Any, answer: Any, value: Any, kind: type[Any]) -> int:
        assert handle.value == 0xABC
        assert type(answer._obj) is kind
        if value is None:
            return 3  # not supported
        answer._obj.value = value
        return 0


def test_every_field_is_read() -> None:
    library = FakeNvml()
    assert gpu_state("GPU-1234", library=library) == BUSY
    assert library.open == 0
    assert all(value is not None for value in vars(BUSY).values())


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(GpuState)])
def test_what_a_driver_does_not_answer_is_none(field: str) -> None:
    state = dataclasses.replace(BUSY, **{field: None})
    assert gpu_state("GPU-1234", library=FakeNvml(state)) == state


def test_a_function_that_a_driver_does_not_have() -> None:
    reasons = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
    library = FakeNvml(missing=(*reasons, "nvmlDeviceGetMigMode"))
    assert gpu_state("GPU-1234", library=library) == dataclasses.replace(BUSY, throttle_bits=None, mig_mode=None)
    assert library.open == 0
    for name in reasons:  # one of them is enough
        assert gpu_state("GPU-1234", library=FakeNvml(missing=(name,))) == BUSY


def test_the_gpu_is_found_by_what_it_is() -> None:
    other = FakeNvml(uuid=b"other")
    assert gpu_state("GPU-1234", "00000000:3b:00.0", library=other) == BUSY
    assert gpu_state("GPU-1234", None, library=other) == GpuState(driver="570.124.06")
    assert gpu_state("GPU-1234", "00000000:af:00.0", library=other) == GpuState(driver="570.124.06")
    assert gpu_state(library=other) == BUSY


def test_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> Any:
        raise OSError("planted: no such library")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert gpu_state() is None
    assert gpu_state(library=FakeNvml(init=9)) is None  # the driver is not loaded


def test_the_library_is_that_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", {"libnvidia-ml.so.1": FakeNvml()}.__getitem__)
    assert gpu_state() == BUSY


def test_reasons_in_words() -> None:
    assert GpuState().throttle_reasons == ()
    assert GpuState(throttle_bits=0b1000101).throttle_reasons == ("idle", "power cap", "thermal slowdown (hardware)")
    assert GpuState(throttle_bits=1 << 40).throttle_reasons == ("bit 40",)


@given(st.integers(0, 2**64 - 1))
def test_every_bit_has_its_word(bits: int) -> None:
    words = GpuState(throttle_bits=bits).throttle_reasons
    assert len(words) == len(set(words)) == bin(bits).count("1")


def changed(**fields: Any) -> GpuState:
    return dataclasses.replace(BUSY, **fields)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (BUSY, BUSY, []),
        (None, BUSY, []),
        (BUSY, None, []),
        (GpuState(), GpuState(), []),
        (changed(sm_clock_mhz=210, throttle_bits=1), BUSY, []),  # it idled before the work, as GPUs do
        (BUSY, changed(sm_clock_mhz=210, throttle_bits=1), ["idle clock: 210 of 1980 MHz"]),
        (BUSY, changed(sm_clock_mhz=1200, throttle_bits=2), ["set clock: 1200 of 1980 MHz"]),
        (BUSY, changed(sm_clock_mhz=1800, throttle_bits=2), []),
        (changed(throttle_bits=4), BUSY, ["throttled: power cap"]),
        (
            changed(throttle_bits=0x40),
            changed(sm_clock_mhz=600, throttle_bits=0x48),
            ["throttled: hardware slowdown", "throttled: thermal slowdown (hardware)"],
        ),
    ],
)
def test_marks(before: GpuState | None, after: GpuState | None, expected: list[str]) -> None:
    assert marks(before, after) == expected


def test_ids_of_torchs_properties() -> None:
    properties = SimpleNamespace(uuid="1234", pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0)
    assert torch_ids(properties) == ("GPU-1234", "00000000:3b:00.0")
    assert torch_ids(SimpleNamespace(uuid="GPU-1234")) == ("GPU-1234", None)
    assert torch_ids(SimpleNamespace(uuid="MIG-1234")) == ("MIG-1234", None)
    assert torch_ids(SimpleNamespace()) == (None, None)


@pytest.mark.cuda
def test_a_real_gpu_answers() -> None:
    import torch

    state = nvml.gpu_state(*torch_ids(torch.cuda.get_device_properties(0)))
    assert state is not None
    assert state.sm_clock_max_mhz is not None
    assert state.sm_clock_max_mhz >= (state.sm_clock_mhz or 0) > 0
