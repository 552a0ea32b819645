"""The server's command line: sizes, paths and refusals of one line."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from mnemosyne.server.options import check, default_threads, parse_quota, parse_size
from mnemosyne.server.paths import socket_path
from mnemosyne.server.workerprocess import WorkerOptions, worker_environment


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1), ("512M", 512 << 20), ("4GiB", 4 << 30), ("4gb", 4 << 30), ("1.5G", 3 << 29),
        ("2 TiB", 2 << 40), ("100KiB", 100 << 10), ("7B", 7),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "4 apples", "1e9", "4GiBB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="write for example"):
        parse_size(text)


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"MNEMOSYNE_SOCKET": "/a/b", "XDG_RUNTIME_DIR": "/run/user/7"}, "/a/b"),
        ({"MNEMOSYNE_SOCKET": "", "XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/mnemosyne.sock"),
        ({}, "/tmp/mnemosyne-7.sock"),
    ],
)
def test_the_sockets_path(environ: dict[str, str], path: str) -> None:
    assert socket_path(environ, 7) == path


GOOD = {
    "clients": 4, "device": "cpu", "gpu": "", "socket": "/tmp/x", "memory": "", "threads": 0,
    "level": "info",
}  # fmt: skip


def test_defaults() -> None:
    options = check(**GOOD)  # type: ignore[arg-type]
    assert (options.quota, options.threads) == (0, default_threads())
    assert options.threads >= 1


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("clients", 0, "1 to 16"),
        ("clients", 17, "1 to 16"),
        ("device", "tpu", "none of auto, cpu, cuda, null"),
        ("gpu", "0", "uses no GPU"),
        ("gpu", "first", "neither an index nor a UUID"),
        ("memory", "lots", "no size"),
        ("memory", "1K", "2 MiB at least"),
        ("threads", -1, "1 to 1024"),
        ("level", "loud", "none of debug"),
    ],
)
def test_a_bad_value_is_refused(name: str, value: object, says: str) -> None:
    with pytest.raises(typer.BadParameter, match=says):
        check(**{**GOOD, name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0", "1KiB", "2097151"])
def test_a_quota_is_2_mib_at_least(text: str) -> None:
    with pytest.raises(ValueError, match="a client needs 2 MiB at least"):
        parse_quota(text)


def test_quota_is_in_whole_granules() -> None:
    assert check(**{**GOOD, "memory": "5M"}).quota == 4 << 20  # type: ignore[arg-type]


def test_the_worker_gets_no_preload_and_no_cuda_settings() -> None:
    given = {"LD_PRELOAD": "x", "CUDA_LAUNCH_BLOCKING": "1", "PATH": "/b", "OMP_NUM_THREADS": "9"}
    options = WorkerOptions("cuda", "", slots=8, threads=3, memory=0, log_level="info")
    assert worker_environment(given, options) == {
        "PATH": "/b", "CUDA_DEVICE_MAX_CONNECTIONS": "16", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUBLAS_WORKSPACE_CONFIG": ":16:8",
        "OMP_NUM_THREADS": "3",
    }  # fmt: skip


@pytest.mark.parametrize(("gpu", "visible"), [("", "1"), ("2", "2")])
def test_the_workers_gpu_is_the_one_asked_for_or_the_callers_first(gpu: str, visible: str) -> None:
    options = WorkerOptions("cuda", gpu, slots=8, threads=3, memory=0, log_level="info")
    found = worker_environment({"CUDA_VISIBLE_DEVICES": "1"}, options)
    assert found["CUDA_VISIBLE_DEVICES"] == visible


def test_supervisor_and_options_load_without_torch() -> None:
    code = "import sys, mnemosyne.server.main; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout == "False\n"
