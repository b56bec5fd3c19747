#!/usr/bin/env python3
"""The peer of bench/beside_pytorch.py: one Llama training step in plain PyTorch, as its users would write it.

Fused attention where this PyTorch has it, bf16 by autocast, AdamW with clipping. Measures each
implementation of attention that PyTorch has for the device, at the model's shapes, and takes the
fastest. Prints a JSON line after each step, with the seconds and losses of all steps so far, the
implementation of attention and the milliseconds of each. The shapes come as JSON in the
first argument: model (layers, hidden, heads, kv_heads, ffn, vocab, perhaps tied), micro, sequence,
precision, threads, steps, perhaps device ("cpu", "cuda"), compile, and weights ("BF16": not f32).
"""
import contextlib
import json
import math
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


class RmsNorm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, (x.shape[-1],), self.gain, 1e-5)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.gain


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def attend(q, k, v):
    if VERSION >= (2, 5):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    if VERSION >= (2, 0):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    mask = torch.full((q.shape[2], q.shape[2]), -math.inf).triu(1)
    return torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[3]) + mask, -1) @ v


def attention_milliseconds(backend, run, device):
    """Of one layer's attention, forward and backward; inf where PyTorch has no such implementation for the shapes."""
    from torch.nn.attention import sdpa_kernel
    m = run["model"]
    dtype = torch.bfloat16 if run["precision"] == "BF16" else torch.float32
    heads = (m["heads"], m["kv_heads"], m["kv_heads"])
    qkv = [torch.randn(run["micro"], n, run["sequence"], m["hidden"] // m["heads"], device=device, dtype=dtype,
                       requires_grad=True) for n in heads]
    milliseconds = []
    try:
        with sdpa_kernel(backend):
            for _ in range(5):
                start = time.perf_counter()
                attend(*qkv).sum().backward()
                if device == "cuda":
                    torch.cuda.synchronize()
                milliseconds.append((time.perf_counter() - start) * 1e3)
    except RuntimeError:  # Not for these shapes or this device, or out of memory.
        return math.inf
    return statistics.median(milliseconds[2:])


def fastest_attention(run, device):
    """A context in which PyTorch has its fastest attention, that one's name, and the milliseconds of each."""
    if VERSION < (2, 5):
        return contextlib.nullcontext(), "default", {}
    from torch.nn.attention import SDPBackend, sdpa_kernel
    fused = [backend for name, backend in SDPBackend.__members__.items()
             if name not in ("ERROR", "MATH", "OVERRIDEABLE")]
    times = {backend.name: attention_milliseconds(backend, run, device) for backend in fused}
    found = {name: time for name, time in times.items() if time < math.inf}
    # The plain one writes all scores to memory. It is never the fastest of several.
    best = min(found, key=found.get) if found else "MATH"
    return sdpa_kernel(SDPBackend.__members__[best]), best, found


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads, self.kv_heads, self.d = m["heads"], m["kv_heads"], m["hidden"] // m["heads"]
        self.attention_norm, self.mlp_norm = RmsNorm(m["hidden"]), RmsNorm(m["hidden"])
        self.qkv = nn.Linear(m["hidden"], (self.heads + 2 * self.kv_heads) * self.d, bias=False)
        self.o = nn.Linear(self.heads * self.d, m["hidden"], bias=False)
        self.gate_up = nn.Linear(m["hidden"], 2 * m["ffn"], bias=False)
        self.down = nn.Linear(m["ffn"], m["hidden"], bias=False)

    def forward(self, x, cos, sin):
        b, s, h = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(b, s, -1, self.d).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], 1)
        y = attend(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + self.o(y.transpose(1, 2).reshape(b, s, self.heads * self.d))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, m, sequence):
        super().__init__()
        self.embedding = nn.Embedding(m["vocab"], m["hidden"])
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["layers"]))
        self.norm = RmsNorm(m["hidden"])
        self.head = nn.Linear(m["hidden"], m["vocab"], bias=False)
        if m.get("tied"):
            self.head.weight = self.embedding.weight
        d = m["hidden"] // m["heads"]
        angles = torch.outer(torch.arange(sequence).float(), 5e5 ** (-torch.arange(0, d, 2) / d)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())


def main():
    run = json.loads(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(run["threads"])
    device = run.get("device", "cpu")
    model = Llama(run["model"], run["sequence"]).to(device)
    if run.get("weights") == "BF16":
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, weight_decay=0.1, **({"fused": True} if VERSION >= (2, 4) else {}))
    forward = torch.compile(model) if run.get("compile") else model
    attention, name, times = fastest_attention(run, device)
    seconds, losses = [], []
    with attention:
        for _ in range(run["steps"]):
            batch = torch.randint(0, run["model"]["vocab"], (run["micro"], run["sequence"] + 1)).to(device)
            start = time.perf_counter()
            with torch.autocast(device, torch.bfloat16, enabled=run["precision"] == "BF16"):
                loss = forward(batch[:, :-1], batch[:, 1:])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())  # Waits for the device.
            if device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
            told = {"version": torch.__version__, "attention": name, "attention_ms": times, "seconds": seconds,
                    "losses": losses}
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
