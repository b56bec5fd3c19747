#!/usr/bin/env python3
"""Makes muon.json: matrices after 20 steps of torch.optim.Muon, in f64.

    pip install "torch==2.15.0"
    python3 tests/golden/make_muon.py > tests/golden/muon.json

PyTorch orthogonalizes in bf16. Here it does so in f64: what it takes for bf16 is f64.
tests/kernels/optimizer/muon_test.cc makes the same weights and gradients.
"""
import json
import math

import torch

STEPS, RATE, MOMENTUM, DECAY = 20, 0.02, 0.95, 0.1


def values(count, index, step):
    return [math.sin(1 + 0.7 * index(i) + 1.3 * step) for i in range(count)]


def train(rows, columns):
    start = torch.tensor(values(rows * columns, lambda i: i, 0), dtype=torch.float64).view(rows, columns)
    w = torch.nn.Parameter(start)
    optimizer = torch.optim.Muon([w], lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True,
                                 adjust_lr_fn="match_rms_adamw")
    for step in range(1, STEPS + 1):
        given = torch.tensor(values(rows * columns, lambda i: i * i, step), dtype=torch.float64)
        w.grad = given.view(rows, columns) + 0.1 * w.detach()
        optimizer.step()
    momentum = optimizer.state[w]["momentum_buffer"]
    return {"rows": rows, "columns": columns, "weights": w.detach().flatten().tolist(),
            "momentum": momentum.flatten().tolist()}


torch.bfloat16 = torch.float64
print(json.dumps({"torch": torch.__version__, "learning_rate": RATE, "momentum": MOMENTUM,
                  "weight_decay": DECAY,
                  "matrices": [train(*shape) for shape in [(5, 7), (8, 3), (6, 6), (1, 4)]]}, indent=1))
