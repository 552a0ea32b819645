"""What cases share: their table, inputs that are the same on every device, training steps."""

import torch

CASES = {}


class Skip(Exception):
    """The case can't be tried here; the reason."""


class Setting:
    device = "cuda"
    tiny = False


def case(name, *arguments):
    """Register a function that returns tensors, or a step that does when called."""

    def register(function):
        CASES[name] = lambda: function(*arguments)
        return function

    return register


def pick(full, tiny):
    return tiny if Setting.tiny else full


def need(*names):
    import importlib

    found = []
    for name in names:
        try:
            found.append(importlib.import_module(name))
        except ImportError as error:
            if error.name and error.name.split(".")[0] == name.split(".")[0]:
                raise Skip(f"{name} is not installed") from None
            raise
    return found[0] if len(found) == 1 else found


def randn(*shape, dtype=torch.float32):
    """Drawn on the CPU, so that every device gets the same."""
    return torch.randn(shape).to(Setting.device, dtype)


def randint(high, *shape):
    return torch.randint(high, shape).to(Setting.device)


def with_grads(function, *inputs, params=()):
    """The output, and the gradients of all inputs and parameters."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = function(*leaves)
    weight = torch.linspace(-1, 1, out.numel(), device=out.device).view(out.shape).to(out.dtype)
    grads = torch.autograd.grad(out, [*leaves, *params], weight, allow_unused=True)
    return [out, *(g for g in grads if g is not None)]


def training(model, loss_of, amp=None, lr=0.01):
    """A step that returns its loss; fp16 with a GradScaler."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    scaler = torch.amp.GradScaler(Setting.device, enabled=amp is torch.float16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(Setting.device, amp or torch.bfloat16, enabled=amp is not None):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return [loss]

    return step
