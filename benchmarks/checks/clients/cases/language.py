"""Language models of libraries, with random weights, and the loops that libraries run."""

from __future__ import annotations

import logging
from typing import Any

import torch
import torch.nn.functional as F
from case import Setting, Step, Tensors, autocast, case, cases, gpu_only, need, pick, randint, randn
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

TOKENS = 500
SPECIAL = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


def gpt2(**settings: Any) -> Any:
    transformers = need("transformers")
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), pick(0.1, 0.0))
    config = transformers.GPT2Config(
        vocab_size=TOKENS, n_positions=128, n_embd=64, n_layer=2, n_head=4,
        **SPECIAL, **dropout, **settings,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config).to(Setting.device)


def llama(**settings: Any) -> Any:
    transformers = need("transformers")
    config = transformers.LlamaConfig(
        vocab_size=TOKENS, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        **SPECIAL, **settings,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).to(Setting.device)


MODELS = {"gpt2": gpt2, "llama": llama}


@cases({
    f"{name} training {word}{how}": (name, amp, bool(how))
    for name in MODELS
    for word, amp in (("fp32", None), ("bf16", torch.bfloat16))
    for how in ("", ", checkpointing")
})  # fmt: skip
def train(name: str, amp: torch.dtype | None, checkpointing: bool) -> Step:
    model = MODELS[name]()
    if checkpointing:
        model.gradient_checkpointing_enable()
        model.config.use_cache = False
    return fit(model, amp)


@cases({
    f"{name}, attention {how}": (name, how) for name in MODELS for how in ("eager", "sdpa")
})  # fmt: skip
def attention(name: str, how: str) -> Step:
    return fit(MODELS[name](attn_implementation=how), None)


def fit(model: Any, amp: torch.dtype | None) -> Step:
    """A step with AdamW and clipped gradients."""
    tokens = randint(TOKENS, 4, 32)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    model.train()

    def step() -> Tensors:
        optimizer.zero_grad()
        with autocast(amp):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return [loss, norm]

    return step


WAYS: dict[str, dict[str, Any]] = {
    "sampled, top_k": {"do_sample": True, "top_k": 20, "temperature": 0.8},
    "sampled, top_p": {"do_sample": True, "top_p": 0.9},
    "greedy": {"do_sample": False},
    "beams": {"do_sample": False, "num_beams": 3},
    "without a cache": {"do_sample": False, "use_cache": False},
    "static cache": {"do_sample": False, "cache_implementation": "static"},
}


@cases({f"{name} generates: {way}": (name, way) for name in MODELS for way in WAYS})
def generate(name: str, way: str) -> Step:
    if WAYS[way]["do_sample"]:
        gpu_only("random numbers of a GPU")
    model = MODELS[name]().eval()
    prompt = randint(TOKENS, 2, 8)
    settings = {"max_new_tokens": pick(24, 6), "min_new_tokens": 4, **WAYS[way]}
    if hasattr(model.generation_config, "disable_compile"):  # the item programs compiles
        settings["disable_compile"] = True

    def step() -> Tensors:
        torch.manual_seed(1)
        with torch.no_grad():
            return [model.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)]

    return step


@cases({"peft: LoRA on llama": ({},), "peft: DoRA on llama": ({"use_dora": True},)})
def lora(settings: dict[str, bool]) -> Step:
    peft = need("peft")
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], **settings
    )
    return fit(peft.get_peft_model(llama(), config), None)


def dataset() -> TensorDataset:
    return TensorDataset(torch.randn(32, 16), torch.randint(4, (32,)))


@cases({f"accelerate's loop {precision}": (precision,) for precision in ("no", "bf16", "fp16")})
def accelerated(precision: str) -> Step:
    """An epoch with accumulated and clipped gradients."""
    accelerate = need("accelerate")
    accelerate.state.AcceleratorState._reset_state(True)
    accelerator = accelerate.Accelerator(
        mixed_precision=precision, gradient_accumulation_steps=2, cpu=Setting.device == "cpu"
    )
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
    loader = DataLoader(dataset(), batch_size=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    prepared = accelerator.prepare(model, optimizer, loader)
    return lambda: epoch(accelerator, *prepared)


def epoch(accelerator: Any, model: nn.Module, optimizer: Any, loader: Any) -> Tensors:
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss))
    return losses


@cases({
    f"lightning's Trainer {precision}": (precision,)
    for precision in ("32-true", "bf16-mixed", "16-mixed")
})  # fmt: skip
def trained(precision: str) -> Tensors:
    lightning = need("lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    model = module(lightning)
    trainer = lightning.Trainer(
        max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, precision=precision, devices=1,
        accelerator="gpu" if Setting.device == "cuda" else "cpu",
    )  # fmt: skip
    trainer.fit(model, DataLoader(dataset(), batch_size=8))
    return model.losses


def module(lightning: Any) -> Any:
    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
            self.losses: list[Tensor] = []

        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
            loss = F.cross_entropy(self.layers(batch[0]), batch[1])
            self.losses.append(loss.detach())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    return Module()


@case("nn.Transformer")
def transformer() -> Step:
    dropout = pick(0.1, 0.0)
    model = nn.Transformer(32, 4, 2, 2, 64, dropout=dropout, batch_first=True).to(Setting.device)
    source, target = randn(2, 10, 32), randn(2, 8, 32)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> Tensors:
        optimizer.zero_grad()
        loss = model(source, target).square().mean()
        loss.backward()
        optimizer.step()
        return [loss]

    return step
