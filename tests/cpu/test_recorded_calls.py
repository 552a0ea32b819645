"""The recorder of ``scripts/record-calls``: what it sees of a client, and what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import recorded
from conftest import Server

CODE = """
import ctypes
cuda = ctypes.CDLL(None)
count = ctypes.c_int()
print(cuda.cudaGetDeviceCount(ctypes.byref(count)), count.value, cuda.cudaDeviceSynchronize())
"""


def test_the_functions_that_a_client_calls_are_noted_and_answer(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "calls"
    folder.mkdir()
    monkeypatch.setenv(recorded.RECORDER, str(recorded.build(tmp_path)))
    monkeypatch.setenv(recorded.FOLDER, str(folder))
    assert server.output(CODE) == "0 1 0"
    assert recorded.read(folder) == {"cudaGetDeviceCount", "cudaDeviceSynchronize"}
    assert len(os.listdir(folder)) >= 1


def test_a_test_file_that_calls_less_than_is_kept_is_named() -> None:
    name, functions = next(iter(recorded.called().items()))
    assert recorded.untrue({name: functions}) == []
    assert recorded.untrue({"cpu/test_new.py": {"cudaMalloc"}}) == []
    gone = min(functions)
    assert recorded.untrue({name: functions - {gone}}) == [f"{name} does not call {gone} any more"]
