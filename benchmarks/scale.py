"""How much is measured: quick tries the benchmark out."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Scale:
    """Times are in seconds."""

    small: bool  # workloads of a size that a CPU can do
    sizes: tuple[str, ...]  # of transformers, alone and several at once
    kinds: tuple[str, ...]  # of transformers and demos
    alone: float  # a window of one program
    together: float  # a window of several
    tail: float  # that programs go on after it, so that all windows end under load
    fairness: float
    fairness_window: float
    idle: float
    most: int  # clients
    repeats: int  # of a small operation in one window
    copied: int  # bytes of a copy whose bandwidth is measured


QUICK = Scale(
    small=True, sizes=("tiny",), kinds=("decoder",), alone=0.1, together=0.1, tail=0.1,
    fairness=2.0, fairness_window=1.0, idle=1.0, most=2, repeats=200, copied=16 * MIB,
)  # fmt: skip
NORMAL = Scale(
    small=False, sizes=("tiny", "base", "large"), kinds=("encoder", "decoder", "encdec"),
    alone=1.0, together=2.5, tail=0.5, fairness=20.0, fairness_window=5.0, idle=5.0, most=8,
    repeats=20_000, copied=256 * MIB,
)  # fmt: skip
