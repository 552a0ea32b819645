"""A client's functions: kernels it may launch, their attributes and their occupancy. Pure.

Occupancy follows cuda_occupancy.h for compute capability 9.0: blocks of one function that fit on
one multiprocessor, by warps, registers, shared memory and block slots.
"""

from __future__ import annotations

from dataclasses import dataclass

from mnemosyne.cubin import Kernel
from mnemosyne.server.devices.cpu.hopper import LIMITS
from mnemosyne.server.devices.cpu.kernels import Run
from mnemosyne.server.errors import (
    INVALID_CONFIGURATION,
    INVALID_VALUE,
    LAUNCH_OUT_OF_RESOURCES,
    CallError,
)
from mnemosyne.server.functions import MAX_DYNAMIC_SHARED, FunctionInfo, check_setting


@dataclass(slots=True)
class Function:
    """One kernel of one client. ``arg_bytes``: length of a launch's packed arguments."""

    number: int
    kernel: Kernel
    run: Run
    arg_bytes: int
    info: FunctionInfo
    module: int = 0  # the client's number, of one that it had in memory

    @classmethod
    def of(cls, number: int, kernel: Kernel, run: Run, module: int = 0) -> Function:
        length = max((offset + size for offset, size in kernel.params), default=0)
        return cls(number, kernel, run, length, _info(kernel), module)

    def set_attribute(self, attribute: int, value: int) -> None:
        """Only the limit of dynamic shared memory means anything here; the rest are hints."""
        check_setting(attribute, value)
        if attribute != MAX_DYNAMIC_SHARED:
            return
        most = LIMITS.opt_in_shared - self.info.sharedSizeBytes
        if not 0 <= value <= most:
            raise CallError(INVALID_VALUE, f"{value} bytes of shared memory, at most {most}")
        self.info.maxDynamicSharedSizeBytes = value

    def check_launch(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int
    ) -> None:
        """Raises CallError as the runtime fails a launch of this size."""
        threads = block[0] * block[1] * block[2]
        if not _fits(grid, LIMITS.grid_dim) or not _fits(block, LIMITS.block_dim):
            raise CallError(INVALID_CONFIGURATION, f"grid {grid} or block {block} is not possible")
        if threads > LIMITS.block_threads:
            raise CallError(INVALID_CONFIGURATION, f"a block of {threads} threads")
        if threads > self.info.maxThreadsPerBlock:
            text = f"a block of {threads} threads, at most {self.info.maxThreadsPerBlock}"
            raise CallError(LAUNCH_OUT_OF_RESOURCES, text)
        if shared > self.info.maxDynamicSharedSizeBytes:
            raise CallError(INVALID_VALUE, f"{shared} bytes of dynamic shared memory")

    def occupancy(self, threads: int, dynamic_shared: int) -> int:
        """Blocks of this function that fit on one multiprocessor."""
        if threads <= 0 or dynamic_shared < 0:
            raise CallError(INVALID_VALUE, f"occupancy of blocks of {threads} threads")
        if threads > self.info.maxThreadsPerBlock:
            return 0
        warps = -(-threads // LIMITS.warp)
        shared = self.info.sharedSizeBytes + dynamic_shared
        return min(
            LIMITS.sm_warps // warps,
            LIMITS.sm_blocks,
            _blocks_by_registers(self.info.numRegs, warps),
            _blocks_by_shared(shared),
        )


def _fits(size: tuple[int, int, int], most: tuple[int, int, int]) -> bool:
    return all(0 < n <= limit for n, limit in zip(size, most, strict=True))


def _info(kernel: Kernel) -> FunctionInfo:
    by_registers = _threads_by_registers(kernel.registers)
    return FunctionInfo(
        sharedSizeBytes=kernel.static_shared,
        constSizeBytes=0,
        localSizeBytes=kernel.stack,
        maxThreadsPerBlock=min(kernel.max_threads or LIMITS.block_threads, by_registers),
        numRegs=kernel.registers,
        ptxVersion=90,
        binaryVersion=90,
        maxDynamicSharedSizeBytes=max(LIMITS.default_shared - kernel.static_shared, 0),
    )


def _threads_by_registers(registers: int) -> int:
    """Threads of one block that have registers, in whole warps per sub-partition."""
    per_partition = LIMITS.partition_registers // max(_warp_registers(registers), 1)
    return min(per_partition * LIMITS.sub_partitions * LIMITS.warp, LIMITS.block_threads)


def _warp_registers(registers: int) -> int:
    return _round_up(registers * LIMITS.warp, LIMITS.register_unit)


def _blocks_by_registers(registers: int, warps: int) -> int:
    needed = _warp_registers(registers)
    if needed == 0:
        return LIMITS.sm_blocks
    if needed * _round_up(warps, LIMITS.sub_partitions) > LIMITS.partition_registers * 4:
        return 0
    return LIMITS.partition_registers // needed * LIMITS.sub_partitions // warps


def _blocks_by_shared(shared: int) -> int:
    if shared > LIMITS.opt_in_shared:
        return 0
    needed = _round_up(shared + LIMITS.reserved_shared, LIMITS.shared_unit)
    return LIMITS.sm_shared // needed


def _round_up(n: int, unit: int) -> int:
    return (n + unit - 1) // unit * unit
