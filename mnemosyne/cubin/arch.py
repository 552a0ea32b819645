"""GPU architectures as nvcc names them (`sm_90`, `sm_90a`, `sm_100f`) and which runs where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from .errors import CubinError

_NAME = re.compile(r"sm_(\d{1,3})(\d)([af]?)")


class Reach(IntEnum):
    """On which devices code runs; a larger value was compiled for fewer of them.

    Source: CUDA C++ Programming Guide, "Compute Capabilities", architecture- and family-specific.
    """

    PORTABLE = 0
    FAMILY = 1
    EXACT = 2


_SUFFIX = {Reach.PORTABLE: "", Reach.FAMILY: "f", Reach.EXACT: "a"}
_REACH = {suffix: reach for reach, suffix in _SUFFIX.items()}


@dataclass(frozen=True, slots=True)
class Arch:
    """A compute capability, plus how far code compiled for it reaches."""

    major: int
    minor: int
    reach: Reach = Reach.PORTABLE

    @classmethod
    def parse(cls, text: str) -> Arch:
        """Read `sm_90`, `sm_90a` or `sm_100f`; anything else raises CubinError."""
        match = _NAME.fullmatch(text)
        if match is None:
            raise CubinError(f"{text!r} is no architecture: write it like sm_90")
        return cls(int(match[1]), int(match[2]), _REACH[match[3]])

    def __str__(self) -> str:
        return f"sm_{self.major}{self.minor}{_SUFFIX[self.reach]}"

    def runs_on(self, device: Arch) -> bool:
        """Say whether code for this architecture runs on `device`, whose own reach is ignored."""
        if self.reach is Reach.EXACT:
            return (self.major, self.minor) == (device.major, device.minor)
        return self.major == device.major and self.minor <= device.minor
