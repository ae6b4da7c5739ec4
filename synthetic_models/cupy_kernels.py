"""CUDA C source of three small kernels, to be compiled at run time (NVRTC). Imports nothing.

Each is launched with one thread. Times are in ns of `%globaltimer`, the one clock that all SMs share; PTX promises no
resolution for it, and it is known to step by 1 us and, on older GPUs, by 32 us. So a spin counts SM cycles
(`clock64`), and the caller finds out how many make a ns from `spin_between`, over a time that dwarfs such a step.
(PTX ISA, "Special Registers", docs.nvidia.com/cuda/parallel-thread-execution.)
"""

from __future__ import annotations

from typing import Final

SPIN: Final = "spin"
SPIN_BETWEEN: Final = "spin_between"
TIMESTAMP: Final = "timestamp"
HOLD: Final = "hold"
KERNELS: Final = (SPIN, SPIN_BETWEEN, TIMESTAMP, HOLD)

HELD: Final = 0
RELEASED: Final = 1
TIMED_OUT: Final = 2
"""What a `hold` has written: nothing yet, that its flag was set, or that it gave up."""

SOURCE: Final = r"""
typedef unsigned long long u64;

__device__ __forceinline__ u64 global_ns() {
    u64 ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns) : : "memory");
    return ns;
}

// Busy for this many cycles. A clock that drops meanwhile can't stretch it past cap_ns, which is looked at rarely
// because reading the global timer takes longer than the loop.
__device__ __forceinline__ void busy(long long cycles, u64 cap_ns) {
    const long long start = clock64();
    const u64 start_ns = global_ns();
    for (unsigned turn = 1; clock64() - start < cycles; ++turn)
        if (turn % 4096 == 0 && global_ns() - start_ns >= cap_ns) return;
}

extern "C" __global__ void spin(long long cycles, u64 cap_ns) {
    busy(cycles, cap_ns);
}

// The same, and the times at which it began and ended.
extern "C" __global__ void spin_between(long long cycles, u64 cap_ns, volatile u64 *began_ended) {
    began_ended[0] = global_ns();
    busy(cycles, cap_ns);
    began_ended[1] = global_ns();
    __threadfence_system();
}

// The time at which the stream came to here, into pinned memory.
extern "C" __global__ void timestamp(volatile u64 *ns) {
    *ns = global_ns();
    __threadfence_system();
}

// Keeps the stream until the host sets the flag in pinned memory, or for timeout_ns; then says which it was.
extern "C" __global__ void hold(u64 timeout_ns, volatile u64 *flag, volatile u64 *outcome) {
    const u64 start_ns = global_ns();
    while (*flag == 0) {
        if (global_ns() - start_ns >= timeout_ns) {
            *outcome = TIMED_OUT;
            __threadfence_system();
            return;
        }
    }
    *outcome = RELEASED;
    __threadfence_system();
}
""".replace("TIMED_OUT", str(TIMED_OUT)).replace("RELEASED", str(RELEASED))
