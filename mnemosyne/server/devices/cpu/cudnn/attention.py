"""Attention of cuDNN graphs: softmax(modified(scale * Q @ K^T)) @ V, as one operation."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch

from mnemosyne.server.devices.cpu.cudnn.content import Descriptor
from mnemosyne.server.devices.cpu.cudnn.graph import (
    Builder,
    Graph,
    Step,
    Tensor,
    Values,
    check_fit,
    check_virtual,
)
from mnemosyne.server.devices.cpu.cudnn.pointwise import compare, repeat
from mnemosyne.server.errors import INVALID_VALUE, CallError

_Q, _K, _V, _O, _STATS, _SCALE = 2800, 2801, 2802, 2803, 2804, 2805
_MODIFIER, _MODIFIER_IN, _MODIFIER_OUT, _SOFTMAX = 2811, 2812, 2813, 2814
_SOFTMAX_X, _SOFTMAX_Y, _SOFTMAX_STATS = 3100, 3101, 3102


def builder(modifiers: Mapping[int, Builder]) -> Builder:
    """The operation, whose scores may be modified by a graph of these operations."""

    def build(d: Descriptor) -> Step:
        d.only({
            _Q, _K, _V, _O, _STATS, _SCALE, _MODIFIER, _MODIFIER_IN, _MODIFIER_OUT, _SOFTMAX,
        })  # fmt: skip
        q, k, v, out = (Tensor.of(d.child(name)) for name in (_Q, _K, _V, _O))
        scale, stats = _tensor(d, _SCALE), _stats(d)
        _check(q, k, v, out)
        modifier = _Modifier.of(d, modifiers)
        if modifier:
            modifier.check((*q.sizes[:3], k.sizes[2]))
        if stats:
            check_fit(stats.sizes == (*q.sizes[:3], 1), f"statistics of {stats.sizes}")

        def run(values: Values) -> None:
            scores = values.read(q).float() @ repeat(values.read(k).float(), q.sizes[:2]).mT
            if scale:
                scores = scores * values.read(scale)
            scores = modifier.run(values, scores) if modifier else scores
            weights, total = _softmax(scores)
            # As tensor cores do: weights in the type of the values, sums in float.
            weights = weights.to(v.dtype).float()
            values.write(out, weights @ repeat(values.read(v).float(), q.sizes[:2]))
            if stats:
                values.write(stats, total)

        reads = (q, k, v, *((scale,) if scale else ()), *(modifier.reads if modifier else ()))
        return Step(reads, (out, *((stats,) if stats else ())), run)

    return build


def _check(q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
    """(batch, heads, length, depth); heads of queries may share keys and values."""
    what = f"an attention of {q.sizes}, {k.sizes}, {v.sizes} to {out.sizes}"
    check_fit(all(len(t.sizes) == 4 for t in (q, k, v, out)), what)
    check_fit(q.sizes[3] == k.sizes[3] and k.sizes[2] == v.sizes[2] > 0, what)
    check_fit(all(t.sizes[0] == q.sizes[0] for t in (k, v)), what)
    check_fit(all(t.sizes[1] and q.sizes[1] % t.sizes[1] == 0 for t in (k, v)), what)
    check_fit(out.sizes == (*q.sizes[:3], v.sizes[3]), what)
    check_virtual(prod(q.sizes[:3]) * k.sizes[2] * 4)


def _tensor(d: Descriptor, name: int) -> Tensor | None:
    found = d.optional(name)
    return Tensor.of(found) if found else None


def _stats(d: Descriptor) -> Tensor | None:
    """Logarithms of the sums of exponentials, for the gradient."""
    softmax = d.optional(_SOFTMAX)
    if softmax is None:
        return _tensor(d, _STATS)
    softmax.only({_SOFTMAX_X, _SOFTMAX_Y, _SOFTMAX_STATS})
    return _tensor(softmax, _SOFTMAX_STATS) or _tensor(d, _STATS)


def _softmax(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """And the logarithm of its denominator; rows without a score have no weights."""
    most = scores.amax(-1, keepdim=True)
    most = torch.where(most == -torch.inf, 0, most)
    weights = (scores - most).exp()
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total == 0, 1, total), total.log() + most


class _Modifier:
    """A graph between scores and softmax; biases and masks are made so."""

    def __init__(self, graph: Graph, entry: Tensor, result: Tensor) -> None:
        self._graph, self._entry, self._result = graph, entry, result
        written = {t.number for step in graph.steps for t in step.writes}
        written.add(entry.number)
        self.reads = tuple(t for step in graph.steps for t in step.reads if t.number not in written)

    @classmethod
    def of(cls, d: Descriptor, builders: Mapping[int, Builder]) -> _Modifier | None:
        found = d.optional(_MODIFIER)
        if found is None:
            return None
        graph = Graph.of(found, builders)
        by_number = {t.number: t for s in graph.steps for t in (*s.reads, *s.writes) if t.virtual}
        entry = by_number.get(d.integer(_MODIFIER_IN))
        result = by_number.get(d.integer(_MODIFIER_OUT))
        if entry is None or result is None:
            raise CallError(INVALID_VALUE, "a cuDNN attention whose modifier lacks its ends")
        return cls(graph, entry, result)

    def check(self, sizes: tuple[int, ...]) -> None:
        """Raises CallError unless it takes and gives scores of these sizes."""
        ends = self._entry.sizes, self._result.sizes
        check_fit(ends == (sizes, sizes), f"scores of {sizes}, modified as {ends}")

    def run(self, values: Values, scores: torch.Tensor) -> torch.Tensor:
        values.write(self._entry, scores)
        self._graph.run(values)
        return values.read(self._result)


def _band_mask(d: Descriptor) -> Step:
    """Scores where row and column compare as asked, and another value elsewhere."""
    d.only({3000, 3005, 3006, 3007})
    x, fill, y = (Tensor.of(d.child(name)) for name in (3000, 3005, 3006))
    holds = compare(d.enum(3007))
    check_fit(x.sizes == y.sizes and len(x.sizes) >= 2, f"a mask of {x.sizes} to {y.sizes}")
    check_fit(prod(fill.sizes) == 1, f"a mask of {fill.sizes} values")

    def run(values: Values) -> None:
        scores = values.read(x)
        rows, columns = (torch.arange(n, device=scores.device) for n in scores.shape[-2:])
        inside = holds(rows[:, None], columns)
        values.write(y, torch.where(inside, scores, values.read(fill).to(scores.dtype)))

    return Step((x, fill), (y,), run)


BUILDERS: dict[int, Builder] = {44: _band_mask}
