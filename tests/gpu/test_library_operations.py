"""On the GPU of this machine: what PyTorch gives to cuBLAS has the bits of native PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from servers import ROOT, Server, start_server

from mnemosyne.server import gpu

pytestmark = pytest.mark.skipif(not gpu.answers(dict(os.environ)), reason="no GPU answers here")

TABLES = ("ops_linalg", "ops_eight_bits")
#: Prints, by case, the bytes of each result in hex, or what PyTorch said.
RUN = """
import importlib, json, sys, torch
sys.path.insert(0, {folder!r})

def bits(tensor):
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes().hex()

def outcome(case):
    try:
        return [bits(tensor) for tensor in case(torch.device("cuda"))]
    except Exception as error:
        return str(error).splitlines()[0]

cases = importlib.import_module({table!r}).CASES
print(json.dumps({{name: outcome(case) for name, case in cases.items()}}))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start_server(tmp_path_factory.mktemp("server"), "--device", "cuda", "--clients", "1")
    yield running
    running.stop()


@pytest.mark.parametrize("table", TABLES)
def test_the_bits_are_those_of_native_pytorch(server: Server, table: str) -> None:
    code = RUN.format(folder=str(ROOT / "tests/cpu"), table=table)
    native = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, timeout=250, check=True
    )
    wanted, got = json.loads(native.stdout), json.loads(server.output(code, timeout=250))
    assert [name for name in wanted if got[name] != wanted[name]] == []
    assert any(isinstance(bits, list) for bits in wanted.values())
