"""probe.py [--device cpu] [--tiny] [--budget SECONDS] [--only WORD[,WORD]] : one JSON line a case.

Words are modules (vision recurrent attention loaders fallbacks programs language) or parts of names.
Each module runs in a process of its own (what one leaves broken, the others don't meet).
"""

import argparse
import hashlib
import importlib
import json
import os
import subprocess
import sys
import time
import warnings

MODULES = ("vision", "recurrent", "attention", "loaders", "fallbacks", "programs", "language")


def sha(tensors):
    import torch

    digest = hashlib.sha256()
    for x in tensors if isinstance(tensors, (list, tuple)) else [tensors]:
        x = x.detach().cpu().resolve_conj().resolve_neg().contiguous()
        digest.update(f"{tuple(x.shape)} {x.dtype}".encode())
        digest.update(x.flatten().view(torch.uint8).numpy().tobytes() if x.numel() else b"")
    return digest.hexdigest()[:16]


def one(module, name, run):
    import case
    import torch

    start = time.perf_counter()
    line = {"module": module, "case": name}
    try:
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = False
        made = run()
        if callable(made):
            line["sha"] = [sha(made()), sha(made())]
            if case.Setting.device == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            sha(made())
            line["ms"] = round(1e3 * (time.perf_counter() - begin), 2)
        else:
            line["sha"] = [sha(made)]
        line["ok"] = True
    except case.Skip as skip:
        line |= {"ok": None, "skip": str(skip)}
    except Exception as error:
        line |= {"ok": False, "err": f"{type(error).__name__}: {error}"[:400]}
    line["s"] = round(time.perf_counter() - start, 2)
    print(json.dumps(line), flush=True)
    if case.Setting.device == "cuda" and line["ok"] is False:
        try:
            torch.cuda.synchronize()
        except Exception as error:
            print(json.dumps({"module": module, "case": name, "broken": str(error)[:200]}), flush=True)
            return False
    return True


def work(options):
    """In a process of the module."""
    warnings.simplefilter("ignore")
    start = time.monotonic()
    import case

    case.Setting.device, case.Setting.tiny = options.device, options.tiny
    importlib.import_module(options.module)
    names = list(case.CASES)
    for i, name in enumerate(names):
        if i < options.start or (options.match and not any(w in name for w in options.match.split("|"))):
            continue
        if time.monotonic() - start > options.budget:
            print(json.dumps({"module": options.module, "out of time before": name}), flush=True)
            return
        print(f"@{i}", file=sys.stderr, flush=True)
        if not one(options.module, name, case.CASES[name]):
            os._exit(77)
    sys.stdout.flush()
    os._exit(0)  # whatever hangs at exit is not the probe's


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--budget", type=float, default=30, help="seconds per module")
    parser.add_argument("--only", default="")
    parser.add_argument("--log", default="/tmp/probe-errors.log")
    parser.add_argument("--module")
    parser.add_argument("--match", default="")
    parser.add_argument("--start", type=int, default=0)
    options = parser.parse_args()
    if options.module:
        return work(options)
    words = [w for w in options.only.split(",") if w]
    modules = [m for m in MODULES if m in words] or list(MODULES)
    match = "|".join(w for w in words if w not in MODULES)
    log = open(options.log, "w")
    for module in modules:
        run_module(options, module, match, log)


def run_module(options, module, match, log):
    """A process that dies goes on behind the case it died in."""
    start, deadline = 0, time.monotonic() + options.budget
    while time.monotonic() < deadline:
        command = [sys.executable, os.path.abspath(__file__), "--module", module, "--device", options.device,
                   "--budget", str(deadline - time.monotonic()), "--start", str(start), "--match", match]
        command += ["--tiny"] if options.tiny else []
        with open(options.log + ".one", "w+") as errors:
            process = subprocess.Popen(command, stdout=None, stderr=errors)
            try:
                code = process.wait(options.budget + 45)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = -9
            errors.seek(0)
            text = errors.read()
        log.write(f"=== {module} from {start}\n{text}")
        log.flush()
        if code == 0:
            return
        reached = [int(l[1:]) for l in text.splitlines() if l.startswith("@")]
        last = reached[-1] if reached else start - 1
        if code != 77:
            tail = [l for l in text.splitlines() if l.strip() and not l.startswith("@")][-3:]
            print(json.dumps({"module": module, "died in case number": last, "code": code, "tail": tail}), flush=True)
        if not reached:
            return
        start = last + 1


if __name__ == "__main__":
    main()
