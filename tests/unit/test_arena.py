"""The allocators, walked at random against a simple model."""

import itertools
import random

import pytest

from mnemosyne.server.arena import ALIGNMENT, BIG, MAX_CHUNK, MIN_CHUNK, Arena
from mnemosyne.server.errors import OUT_OF_MEMORY, CallError
from mnemosyne.server.hostmemory import PAGE, HostMemory

BASE = 0x200000000000
SLOT = 1 << 40
MIB = 1 << 20


class RecordedChunks:
    """Chunks that exist, by offset; refuses overlaps."""

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.short = False

    def make(self, offset: int, size: int) -> None:
        assert size % MIN_CHUNK == 0
        assert offset % MIN_CHUNK == 0
        assert not any(o < offset + size and offset < o + n for o, n in self.live.items())
        self.live[offset] = size

    def adopt(self, offset: int, size: int, source: int) -> None:
        self.make(offset, size)

    def drop(self, offset: int, size: int) -> None:
        assert self.live.pop(offset) == size

    def is_short(self) -> bool:
        return self.short

    def hold(self, pointer: int, size: int) -> bool:
        at = pointer - BASE
        return any(o <= at and at + size <= o + n for o, n in self.live.items())


def new_arena(quota: int = SLOT) -> tuple[Arena, RecordedChunks]:
    chunks = RecordedChunks()
    return Arena(BASE, SLOT, quota, chunks), chunks


def rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def random_size(rng: random.Random) -> int:
    return rng.choice([rng.randint(1, 2000), rng.randint(1, 3 * MIB), rng.randint(1, 40 * MIB)])


@pytest.mark.parametrize("seed", range(5))
def test_random_walk(seed: int) -> None:
    rng = random.Random(seed)
    quota = 500 * MIB
    arena, chunks = new_arena(quota)
    model: dict[int, int] = {}
    for _ in range(1500):
        if model and rng.random() < 0.45:
            pointer = rng.choice(list(model))
            assert arena.free(pointer)
            del model[pointer]
        else:
            size = random_size(rng)
            if sum(map(rounded, model.values())) + rounded(size) > quota:
                with pytest.raises(CallError):
                    arena.malloc(size)
                continue
            pointer = arena.malloc(size)
            assert pointer % ALIGNMENT == 0
            assert chunks.hold(pointer, size)
            model[pointer] = size
        assert arena.used == sum(map(rounded, model.values()))
    check_against(model, arena, rng)
    for pointer in list(model):
        arena.free(pointer)
    assert chunks.live == {}
    assert arena.used == 0


def check_against(model: dict[int, int], arena: Arena, rng: random.Random) -> None:
    ordered = sorted(model.items())
    for (a, size), (b, _) in itertools.pairwise(ordered):
        assert a + rounded(size) <= b
    for pointer, size in rng.sample(ordered, 20):
        assert arena.owns(pointer, size)
        assert arena.owns(pointer + size - 1, 1)
        assert not arena.owns(pointer, rounded(size) + 1)
        assert not arena.free(pointer + 1)


def test_shared_chunks_grow_and_leave_at_most_an_eighth_unused() -> None:
    arena, chunks = new_arena()
    while arena.used < 400 * MIB:
        arena.malloc(MIB)
        assert sum(chunks.live.values()) <= arena.used + arena.used // 8 + MIN_CHUNK
    assert max(chunks.live.values()) == MAX_CHUNK
    assert len(chunks.live) < 50


def test_a_shared_chunk_holds_at_least_what_was_asked_for() -> None:
    arena, chunks = new_arena()
    arena.malloc(BIG - ALIGNMENT)
    assert list(chunks.live.values()) == [BIG]


def test_small_allocations_share_a_chunk_of_two_mebibytes() -> None:
    arena, chunks = new_arena()
    for _ in range(100):
        arena.malloc(1000)
    assert list(chunks.live.values()) == [MIN_CHUNK]


def test_an_allocation_that_fills_a_chunk_has_it_alone() -> None:
    arena, chunks = new_arena()
    arena.malloc(100)
    pointers = [arena.malloc(count * MIN_CHUNK) for count in (1, 1, 5)]
    assert sum(chunks.live.values()) == 8 * MIN_CHUNK
    assert [chunks.live[pointer - BASE] for pointer in pointers] == [2 * MIB, 2 * MIB, 10 * MIB]


def test_a_big_allocation_has_its_own_chunk() -> None:
    arena, chunks = new_arena()
    arena.malloc(100)
    pointer = arena.malloc(BIG + 1)
    assert chunks.live[pointer - BASE] == BIG + MIN_CHUNK
    arena.free(pointer)
    assert len(chunks.live) == 1


def test_where_chunks_are_short_whole_ones_share_large_ones() -> None:
    arena, chunks = new_arena()
    chunks.short = True
    pointers = [arena.malloc(MIN_CHUNK) for _ in range(16)]
    assert list(chunks.live.values()) == [MAX_CHUNK, MAX_CHUNK]
    chunks.short = False
    assert all(arena.free(pointer) for pointer in pointers)
    assert chunks.live == {}


def test_fragments_take_at_most_twice_the_quota() -> None:
    """Large blocks of which little is left over, so that no later one fits beside it."""
    quota = 64 * MIB
    arena, chunks = new_arena(quota)
    refused = []
    for step in reversed(range(1, 40)):
        try:
            large = arena.malloc(MAX_CHUNK - step * ALIGNMENT)
            arena.malloc(step * ALIGNMENT)
        except CallError as error:
            refused.append(str(error))
            continue
        arena.free(large)
        assert sum(chunks.live.values()) <= 2 * quota + MAX_CHUNK
    assert any("do not fit between" in text for text in refused)


def test_the_quota_is_exact() -> None:
    arena, _ = new_arena(quota=10 * MIB)
    pointers = [arena.malloc(MIB) for _ in range(10)]
    with pytest.raises(CallError) as refused:
        arena.malloc(1)
    assert refused.value.code == OUT_OF_MEMORY
    arena.free(pointers[0])
    arena.malloc(MIB)


def test_the_quota_counts_another_sessions_chunk_while_it_is_here() -> None:
    arena, chunks = new_arena(quota=10 * MIB)
    adopted = arena.adopt(6 * MIB, source=0x1000)
    assert arena.used == 6 * MIB
    with pytest.raises(CallError) as refused:
        arena.adopt(6 * MIB, source=0x2000)
    assert refused.value.code == OUT_OF_MEMORY
    assert chunks.live == {adopted - BASE: 6 * MIB}
    other = Arena(BASE, SLOT, 10 * MIB, chunks)
    other.restore([[adopted - BASE, 6 * MIB]], {}, {adopted})
    for one in (arena, other):
        with pytest.raises(CallError):
            one.malloc(5 * MIB)
    other.leave(adopted)
    assert (other.used, chunks.live) == (0, {})
    other.malloc(10 * MIB)


def test_chunks_never_exceed_the_quota_by_more_than_their_unit() -> None:
    arena, chunks = new_arena(quota=7 * MIB)
    for _ in range(7):
        arena.malloc(MIB)
    assert sum(chunks.live.values()) <= 8 * MIB


def test_a_chunk_the_system_refuses_is_out_of_memory() -> None:
    arena, chunks = new_arena()

    def refuse(offset: int, size: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    chunks.make = refuse  # type: ignore[method-assign]
    with pytest.raises(CallError, match="Cannot allocate memory") as refused:
        arena.malloc(100)
    assert refused.value.code == OUT_OF_MEMORY
    del chunks.make
    assert arena.malloc(100) == BASE


def test_restored_arena_goes_on_as_the_first_would() -> None:
    rng = random.Random(1)
    arena, chunks = new_arena()
    model = {arena.malloc(size): size for size in (random_size(rng) for _ in range(200))}
    for pointer in rng.sample(list(model), 100):
        arena.free(pointer)
        del model[pointer]
    live = [[offset, size] for offset, size in chunks.live.items()]
    other = Arena(BASE, SLOT, SLOT, chunks)
    other.restore(live, {pointer: arena.size_of(pointer) for pointer in model})
    assert other.used == arena.used
    check_against(model, other, rng)
    more = other.malloc(5000)
    assert not any(p <= more < p + size for p, size in model.items())
    for pointer in [*model, more]:
        other.free(pointer)
    assert chunks.live == {}


@pytest.mark.parametrize(
    ("chunks", "allocations"),
    [
        ([[0, MIN_CHUNK], [0, MIN_CHUNK]], {}),
        ([[0, MIN_CHUNK]], {BASE + MIN_CHUNK: 512}),
        ([[0, MIN_CHUNK]], {BASE: 1024, BASE + 512: 512}),
    ],
)
def test_restore_refuses_what_does_not_fit(
    chunks: list[list[int]], allocations: dict[int, int]
) -> None:
    arena, _ = new_arena()
    with pytest.raises(ValueError, match="chunk"):
        arena.restore(chunks, allocations)


def test_host_memory_comes_after_staging_and_pages_go_back() -> None:
    released: list[tuple[int, int]] = []
    host = HostMemory(64 * MIB, 65 * MIB, lambda offset, size: released.append((offset, size)))
    first = host.alloc(1)
    second = host.alloc(PAGE + 1)
    assert (first, second) == (64 * MIB, 64 * MIB + PAGE)
    host.free(first)
    assert released == [(first, PAGE)]
    assert host.alloc(1) == first
    with pytest.raises(CallError) as refused:
        host.alloc(2 * MIB)
    assert refused.value.code == OUT_OF_MEMORY
    with pytest.raises(CallError):
        host.free(second + 8)
