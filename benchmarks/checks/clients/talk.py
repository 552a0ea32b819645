"""How a client program is asked: a line on stdin is a request, a line of JSON its answer.

The programs beside this file are ordinary PyTorch programs. They know nothing of Mnemosyne and must
never import it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

Answer = dict[str, Any]


def device() -> str:
    """The device this program was started for: "cuda" or "cpu"."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device: str = parser.parse_args().device
    return device


def serve(requests: Mapping[str, Callable[..., Answer]]) -> None:
    """Answer until stdin ends; what follows the word in a line are numbers and words."""
    say({"ready": True})
    for line in sys.stdin:
        word, *values = line.split()
        say(requests[word](*map(parse, values)))


def parse(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


def say(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)
