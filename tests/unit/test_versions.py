"""Versions of CUDA libraries: what counts as the same, and how a difference reads."""

from __future__ import annotations

import pytest

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.versions import check, mismatch, release

SERVER = [["cudart", 13000], ["cublasLt", 130101], ["cudnn", 91900]]


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("cudart", 13000, "13.0"),
        ("cudart", 12080, "12.8"),
        ("cublasLt", 130101, "13.1"),
        ("cudnn", 91002, "9.10"),
    ],
)
def test_releases_read_as_people_write_them(name: str, version: int, text: str) -> None:
    assert release(name, version) == text


@pytest.mark.parametrize(
    "client",
    [[], SERVER, [["cudnn", 91999]], [["cublasLt", 130199], ["nccl", 1]]],
    ids=["none", "equal", "another patch", "one the server lacks"],
)
def test_the_same_release_fits(client: list[list[object]]) -> None:
    assert mismatch(client, SERVER) == ""


def test_a_server_without_libraries_takes_every_client() -> None:
    assert mismatch([["cudart", 12080], ["cudnn", 80000]], []) == ""


def test_another_release_is_named_with_both_versions_in_one_line() -> None:
    assert mismatch([["cudart", 13000], ["cudnn", 91002]], SERVER) == (
        "the program has cudnn 9.10, the server 9.19; install the same version of PyTorch for both"
    )
    assert "cudart 12.8, the server 13.0" in mismatch([["cudart", 12080]], SERVER)


@pytest.mark.parametrize("libraries", [[1], [["cudnn"]], [["cudnn", "9"]], [[9, 9]], ["ab"]])
def test_a_malformed_list_breaks_the_protocol(libraries: list[object]) -> None:
    with pytest.raises(ProtocolError):
        check(libraries)
