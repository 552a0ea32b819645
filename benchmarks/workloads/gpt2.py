"""Text from GPT-2 of random weights, one token at a time: transformers' if it is installed.

Else one of our own with the same layers and a cache of keys and values. The time of a token ends
when the host has it.
"""

from __future__ import annotations

import importlib.util
import time
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

VOCABULARY, LONGEST = 50257, 1024
PROMPT, LENGTH = 64, 32  # tokens
SIZE, SMALL_SIZE = (768, 12, 12), (64, 2, 2)  # width, heads, layers


class Generator(Protocol):
    length: int  # tokens of a text

    def generate(self, tokens: int) -> list[float]:
        """Greedily, in batch 1; the seconds of each token."""


def make_generator(device: torch.device, small: bool) -> Generator:
    torch.manual_seed(0)
    size, length = (SMALL_SIZE, 8) if small else (SIZE, LENGTH)
    prompt = torch.randint(VOCABULARY, (1, PROMPT)).to(device)
    if importlib.util.find_spec("transformers"):
        return Library(size, prompt, length)
    return Own(size, prompt, length)


class Library:
    """``generate`` of transformers."""

    def __init__(self, size: tuple[int, int, int], prompt: Tensor, length: int) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        width, heads, layers = size
        model = GPT2LMHeadModel(GPT2Config(n_embd=width, n_head=heads, n_layer=layers))
        model.generation_config.eos_token_id = None  # random weights may say it at any time
        model.generation_config.pad_token_id = 0
        self.model: Any = model.to(prompt.device, torch.bfloat16).eval()
        self.prompt, self.length = prompt, length

    def generate(self, tokens: int) -> list[float]:
        stamps = Stamps()
        self.model.generate(
            self.prompt, attention_mask=torch.ones_like(self.prompt), max_new_tokens=tokens,
            do_sample=False, streamer=stamps,
        )  # fmt: skip
        return stamps.seconds()


class Stamps:
    """A streamer, which transformers hands the prompt first and then every token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, tokens: Tensor) -> None:
        tokens.tolist()
        self.times.append(time.perf_counter())

    def end(self) -> None: ...

    def seconds(self) -> list[float]:
        return [after - before for before, after in pairwise(self.times)]


class Own:
    """A GPT-2 written out here."""

    def __init__(self, size: tuple[int, int, int], prompt: Tensor, length: int) -> None:
        self.model = Gpt2(*size).to(prompt.device, torch.bfloat16).eval()
        self.prompt, self.length = prompt, length

    @torch.inference_mode()
    def generate(self, tokens: int) -> list[float]:
        past = [(None, None)] * len(self.model.blocks)
        fed, place, stamps = self.prompt, 0, [time.perf_counter()]
        for _ in range(tokens):
            scores, past = self.model(fed, place, past)
            place += fed.shape[1]
            fed = scores[:, -1:].argmax(-1)
            fed.tolist()
            stamps.append(time.perf_counter())
        return [after - before for before, after in pairwise(stamps)]


class Gpt2(nn.Module):
    """Tokens (B, L) from ``place`` on, and what earlier ones left -> scores (B, L, vocabulary)."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(LONGEST, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, place: int, past: list[Any]) -> tuple[Tensor, list[Any]]:
        places = torch.arange(place, place + tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(places)
        kept = []
        for block, earlier in zip(self.blocks, past, strict=True):
            x, now = block(x, *earlier)
            kept.append(now)
        return self.norm(x) @ self.token.weight.T, kept


class Block(nn.Module):
    """Attention, which only a text's first call masks, and a feed-forward net (B, L, D)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self, x: Tensor, keys: Tensor | None, values: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        split = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        query, key, value = split.unbind(2)
        if keys is not None and values is not None:
            key, value = torch.cat((keys, key), 2), torch.cat((values, value), 2)
        seen = scaled_dot_product_attention(query, key, value, is_causal=keys is None)
        x = x + self.project(seen.transpose(1, 2).flatten(2))
        x = x + self.down(gelu(self.up(self.norms[1](x)), approximate="tanh"))
        return x, (key, value)
