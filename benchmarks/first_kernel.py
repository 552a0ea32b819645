"""``python benchmarks/first_kernel.py``: when this process had its first result from the device.

An ordinary PyTorch program. It knows nothing of Mnemosyne and must never import it. It prints one
line of JSON; moments are those of the machine's monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import time

BEGUN = time.monotonic()

import torch  # noqa: E402

IMPORTED = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a process's first kernel.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = parser.parse_args().device
    (torch.ones(64, device=device) * 2).sum().item()
    done = time.monotonic()
    print(json.dumps({"done": done, "import_s": IMPORTED - BEGUN, "first_s": done - IMPORTED}))


if __name__ == "__main__":
    main()
