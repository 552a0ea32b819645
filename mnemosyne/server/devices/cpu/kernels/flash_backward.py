"""Flash attention's gradients: `flash_bwd_dot_do_o_kernel`, the loop over keys, the conversion.

How this works. The first kernel writes, for every row, the product of the output and its gradient,
and clears the place where the queries' gradient is summed. The loop writes the gradients of keys
and values, for each head of queries, and adds to that place; the last kernel scales and converts
it. Dropout's factor is left out until the end: products of output and gradient are scaled down.
"""

from __future__ import annotations

import re

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .flash import operands
from .flash_dropout import drawn_seed, kept
from .flash_params import (
    element,
    logsumexp,
    operand,
    query_sums,
    reader,
    row_sums,
    sequences,
)
from .names import template_arguments


def _bind_products(kernel: KernelInfo) -> Run:
    """flash_bwd_dot_do_o_kernel: clears unless the loop's sums are kept apart."""
    kind, read = element(kernel), reader(kernel, backward=True)
    clears = template_arguments(kernel.demangled, "flash_bwd_dot_do_o_kernel")[0] == "true"

    def run(launch: Launch) -> None:
        p, memory = read(launch.args), launch.memory
        for group in sequences(p, memory):
            output, grad = (operand(p, memory, kind, name, group).float() for name in ("o", "do"))
            row_sums(p, memory, group).copy_((output * grad).sum(-1) * p.p_dropout)
            if clears:
                query_sums(p, memory, group).zero_()

    return run


def _bind_loop(kernel: KernelInfo) -> Run:
    """flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel."""
    kind, read = element(kernel), reader(kernel, backward=True)

    def run(launch: Launch) -> None:
        p, memory = read(launch.args), launch.memory
        seed = drawn_seed(p, memory)
        for group in sequences(p, memory):
            o = operands(p, memory, kind, group)
            grad = operand(p, memory, kind, "do", group).float()
            weights = (o.logits - logsumexp(p, memory, group)[..., None]).exp()
            grad_weights = grad @ o.value.transpose(2, 3)
            used, keep = weights, kept(p, seed, group)
            if keep is not None:
                used, grad_weights = weights * keep, grad_weights * keep
            grad_logits = weights * (grad_weights - row_sums(p, memory, group)[..., None])
            grad_key = grad_logits.transpose(2, 3) @ o.query * p.scale_softmax_rp_dropout
            operand(p, memory, kind, "dk", group).copy_(grad_key)
            grad_value = used.transpose(2, 3) @ grad * p.rp_dropout
            operand(p, memory, kind, "dv", group).copy_(grad_value)
            query_sums(p, memory, group).add_(grad_logits @ o.key)

    return run


def _bind_convert(kernel: KernelInfo) -> Run:
    """flash_bwd_convert_dq_kernel: (parameters, number of sums that were kept apart)."""
    kind, read, unpack = element(kernel), reader(kernel, backward=True), unpacker(kernel, "xi")

    def run(launch: Launch) -> None:
        p, memory = read(launch.args), launch.memory
        (splits,) = unpack(launch.args)
        for group in sequences(p, memory):
            total = sum(query_sums(p, memory, group, split) for split in range(splits))
            operand(p, memory, kind, "dq", group).copy_(total * p.scale_softmax_rp_dropout)

    return run


FAMILY: Family = [
    (re.compile(r"\bflash_bwd_dot_do_o_kernel<"), _bind_products),
    (re.compile(r"\bflash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<"), _bind_loop),
    (re.compile(r"\bflash_bwd_convert_dq_kernel<"), _bind_convert),
]
