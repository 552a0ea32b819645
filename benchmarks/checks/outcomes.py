"""What a case gave on either side, and what that says. Values in, values out.

Where native runs agree on a case, ours must have the same bits. Where they do not, chance orders
its sums, and each result may be as far from the nearest native one as native runs are apart in it,
or as two roundings to its type: programs that start at another moment add in another order.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.checks.losses import distance, distance_to_nearest
from benchmarks.checks.results import Check, Verdict

LONGEST, NARROW = 160, 60  # characters of an error that is quoted: ours, native's
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class Outcome:
    """Results with their SHA-256 and fingerprint, or an error, or the reason of a skip.

    ``eps``: of the type of each result, 0 for whole numbers.
    """

    shas: tuple[str, ...] = ()
    fingerprints: tuple[float, ...] = ()
    eps: tuple[float, ...] = ()
    seconds: float | None = None  # of one step
    error: str = ""
    skip: str = ""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Outcome:
        """From what the program said of the case."""
        results = said.get("results", [])
        return cls(
            tuple(result["sha"] for result in results),
            tuple(float.fromhex(result["fingerprint"]) for result in results),
            tuple(result["eps"] for result in results),
            said.get("seconds"),
            _ADDRESS.sub("0x...", said.get("error", "")),
            said.get("skip", ""),
        )

    @property
    def gave(self) -> bool:
        return not self.error and not self.skip


def agree(outcomes: Sequence[Outcome]) -> bool:
    """Whether all gave the same bits, or the same error."""
    return len({(one.shas, one.error, one.skip) for one in outcomes}) == 1


def conclude(
    name: str, ours: Outcome, natives: Sequence[Outcome], tolerance: float, errors_count: bool
) -> Check:
    """``errors_count``: an error that is native's too is what the case is for."""
    verdict, native, here = _compare(ours, natives, tolerance, errors_count)
    speed = _speed(ours, natives) if ours.gave else ""
    figure = ", ".join(filter(None, (here, f"natively {native}" if native else "", speed)))
    return Check(name, verdict, figure, cells=(native, here, speed))


def _compare(
    ours: Outcome, natives: Sequence[Outcome], tolerance: float, errors_count: bool
) -> tuple[Verdict, str, str]:
    """The verdict, and in words what native runs and ours gave."""
    giving = [native for native in natives if native.gave]
    if not giving:
        return _natively_none(ours, natives[0], errors_count)
    native = f"{len(giving[0].shas)} results"
    if not agree(natives):
        native += f", {len(natives)} runs differ"
    if not ours.gave:
        here = f"refused: {quoted(ours.error)}" if ours.error else f"skipped alone: {ours.skip}"
        return Verdict.FAIL, native, here
    holds, here = _results(ours, giving, tolerance)
    return (Verdict.PASS if holds else Verdict.FAIL), native, here


def _natively_none(ours: Outcome, native: Outcome, errors_count: bool) -> tuple[Verdict, str, str]:
    """Where native PyTorch gives no results either."""
    if native.skip:
        return Verdict.SKIP, "", f"skipped: {native.skip}"
    same = ours.error == native.error
    verdict = (Verdict.PASS if same else Verdict.FAIL) if errors_count else Verdict.SKIP
    here = "the same error" if same else quoted(ours.error) or "no error"
    return verdict, quoted(native.error, NARROW), here


def _results(ours: Outcome, natives: Sequence[Outcome], tolerance: float) -> tuple[bool, str]:
    """Whether every result is one that native PyTorch gives."""
    counts = {len(native.shas) for native in natives}
    if counts != {len(ours.shas)}:
        return False, f"{len(ours.shas)} results, natively {sorted(counts)}"
    places = list(zip(*(native.fingerprints for native in natives), strict=True))
    near, chance = 0, not agree(natives)
    for place, (sha, eps) in enumerate(zip(ours.shas, ours.eps, strict=True)):
        if sha in {native.shas[place] for native in natives}:
            continue
        allowed = max(tolerance, _spread(places[place]), eps if chance else 0.0)
        apart = distance_to_nearest(ours.fingerprints[place], *places[place])
        if apart > allowed or not allowed:
            nearest = f"{apart:.2g} from the nearest of {len(natives)} native runs"
            return False, f"result {place + 1} differs: {nearest}"
        near += 1
    return True, f"{near} within {_allowed(tolerance)}" if near else "bit-identical"


def _spread(fingerprints: Sequence[float]) -> float:
    """How far native runs are apart in a result."""
    return max(distance(one, other) for one in fingerprints for other in fingerprints)


def _allowed(tolerance: float) -> str:
    return f"{tolerance:g}" if tolerance else "native's own spread"


def _speed(ours: Outcome, natives: Sequence[Outcome]) -> str:
    """Such as ``1.18x (2 ms, native 2.36 ms)``."""
    known = [native.seconds for native in natives if native.seconds]
    if not ours.seconds or not known:
        return ""
    native = statistics.median(known)
    ratio = native / ours.seconds
    return f"{ratio:.2f}x ({time_text(ours.seconds)}, native {time_text(native)})"


def time_text(seconds: float) -> str:
    """Such as ``1.5 ms``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def quoted(text: str, longest: int = LONGEST) -> str:
    """An error's first line, no longer than fits a table."""
    line = " ".join(text.partition("\n")[0].split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."
