"""Language models of libraries, with random weights."""

import torch
import torch.nn.functional as F
from case import Setting, case, need, pick, randint, randn
from torch import nn


def gpt2(**settings):
    transformers = need("transformers")
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), pick(0.1, 0.0))
    config = transformers.GPT2Config(
        vocab_size=500, n_positions=128, n_embd=64, n_layer=2, n_head=4, bos_token_id=0,
        eos_token_id=0, pad_token_id=0, **{**dropout, **settings},
    )
    return transformers.GPT2LMHeadModel(config).to(Setting.device)


def llama(**settings):
    transformers = need("transformers")
    config = transformers.LlamaConfig(
        vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0,
        eos_token_id=0, pad_token_id=0, **settings,
    )
    return transformers.LlamaForCausalLM(config).to(Setting.device)


MODELS = {"gpt2": gpt2, "llama": llama}


def fit(model, amp=False, tokens=None):
    tokens = randint(500, 4, 32) if tokens is None else tokens
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    model.train()

    def step():
        optimizer.zero_grad()
        with torch.autocast(Setting.device, torch.bfloat16, enabled=amp):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return [loss]

    return step


@case("gpt2 training fp32", "gpt2", False, False)
@case("gpt2 training bf16, checkpointing", "gpt2", True, True)
@case("llama training fp32", "llama", False, False)
@case("llama training bf16, checkpointing", "llama", True, True)
def train(name, amp, checkpointing):
    model = MODELS[name]()
    if checkpointing:
        model.gradient_checkpointing_enable()
        model.config.use_cache = False
    return fit(model, amp)


@case("gpt2 attention eager", "gpt2", "eager")
@case("gpt2 attention sdpa", "gpt2", "sdpa")
@case("llama attention eager", "llama", "eager")
@case("llama attention flex_attention", "llama", "flex_attention")
def attention(name, how):
    return fit(MODELS[name](attn_implementation=how))


@case("gpt2 generate, sampled", "gpt2", {"do_sample": True, "top_k": 20, "temperature": 0.8})
@case("gpt2 generate, greedy", "gpt2", {"do_sample": False})
@case("gpt2 generate, beams", "gpt2", {"do_sample": False, "num_beams": 3})
@case("llama generate, sampled", "llama", {"do_sample": True, "top_p": 0.9})
@case("llama generate without a cache", "llama", {"do_sample": False, "use_cache": False})
@case("llama generate, static cache", "llama", {"do_sample": False, "cache_implementation": "static"})
def generate(name, settings):
    model = MODELS[name]().eval()
    prompt = randint(500, 2, 8)
    mask = torch.ones_like(prompt)

    def step():
        torch.manual_seed(1)
        with torch.no_grad():
            settled = {"max_new_tokens": pick(24, 6), "min_new_tokens": 4, **settings}
            return [model.generate(prompt, attention_mask=mask, **settled)]

    return step


@case("peft LoRA on llama", {})
@case("peft DoRA on llama", {"use_dora": True})
def lora(settings):
    peft = need("peft")
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=4, lora_alpha=8, lora_dropout=0.0,
        target_modules=["q_proj", "v_proj"], **settings,
    )
    return fit(peft.get_peft_model(llama(), config))


@case("accelerate's loop fp32", "no")
@case("accelerate's loop bf16", "bf16")
@case("accelerate's loop fp16", "fp16")
def accelerated(precision):
    accelerate = need("accelerate")
    accelerate.state.AcceleratorState._reset_state(True)
    accelerator = accelerate.Accelerator(
        mixed_precision=precision, gradient_accumulation_steps=2, cpu=Setting.device == "cpu"
    )
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
    data = torch.utils.data.TensorDataset(torch.randn(32, 16), torch.randint(4, (32,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def epoch():
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

    return epoch


@case("lightning's Trainer fp32", "32-true")
@case("lightning's Trainer bf16", "bf16-mixed")
@case("lightning's Trainer fp16", "16-mixed")
def lightning(precision):
    lightning = need("lightning")
    import logging

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
            self.losses = []

        def training_step(self, batch, index):
            x, y = batch
            loss = F.cross_entropy(self.layers(x), y)
            self.losses.append(loss.detach())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    model = Model()
    data = torch.utils.data.TensorDataset(torch.randn(32, 16), torch.randint(4, (32,)))
    trainer = lightning.Trainer(
        max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, precision=precision, devices=1,
        accelerator="gpu" if Setting.device == "cuda" else "cpu",
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8))
    return model.losses


@case("nn.Transformer step")
def transformer():
    dropout = pick(0.1, 0.0)
    model = nn.Transformer(32, 4, 2, 2, 64, dropout=dropout, batch_first=True).to(Setting.device)
    source, target = randn(2, 10, 32), randn(2, 8, 32)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = model(source, target).square().mean()
        loss.backward()
        optimizer.step()
        return [loss]

    return step
