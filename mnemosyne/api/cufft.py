"""cuFFT as PyTorch calls it (cufft.h, cufftXt.h).

A plan's stream and work area are kept in the client and go with the calls that use them.
"""

from mnemosyne.api.rows import KEEPS, Library
from mnemosyne.api.spec import Mode
from mnemosyne.api.words import handwritten

_LIBRARY = Library("cufft", "cufftResult", {"plan": "cufftHandle"}, handle_ctype="int")

REGULAR = _LIBRARY.calls(
    ("cufftCreate", "", "+plan"),
    ("cufftDestroy", "", "-plan"),
    ("cufftSetAutoAllocation", "", "@plan autoAllocate", KEEPS),
    (
        "cufftXtMakePlanMany", "",
        "@plan rank #n:8*rank #?inembed:8*rank istride.l idist.l inputtype #?onembed:8*rank "
        "ostride.l odist.l outputtype batch.l >workSize.z executiontype",
        KEEPS,
    ),
    ("cufftXtExec", "", "@plan *input *output direction"),
)  # fmt: skip

BY_HAND = handwritten(
    "cufft", Mode.LOCAL, "goes with the calls that use the plan",
    "cufftSetStream", "cufftSetWorkArea",
)  # fmt: skip
