#!/usr/bin/env python3
"""Makes delayed.json: twelve steps of two linear layers under delayed scaling, by the formulas of Transformer Engine, in f64.

    pip install numpy==2.4.6
    python3 tests/golden/make_delayed.py > tests/golden/delayed.json

The formulas, per tensor (input, weight, gradient of the output), as in docs/examples/fp8_primer of Transformer Engine and its
transformer_engine/common/recipe/delayed_scaling.cu, with amax_compute_algo "max" and margin 0:

    multiplied by scale, which is 1 at first, rounded to nearest even and cut off at fp8_max; the product is divided by the scales
    after the step: history = history rolled by one, with the step's greatest absolute value as its newest
                    scale   = fp8_max / max(history) / 2^margin, or as before where the maximum is 0

with e4m3 (fp8_max 448) for inputs and weights, and e5m2 (57344) for gradients. Source of the method: Micikevicius et al. 2022,
arXiv:2209.05433. Weights are updated by AdamW as in PyTorch. tests/train/step/delayed_scaling_test.cc has the same inputs.
"""
import json

import numpy as np

STEPS, TOKENS, WIDTH = 12, 6, 8
RATE, BETA1, BETA2, EPSILON, DECAY = 0.01, 0.9, 0.95, 1e-3, 0.1
SIZES = (1, 4, 0.5, 0.25, 16, 0.125, 0.125, 0.5, 2, 0.0625, 0.0625, 1)  # Of each step's inputs.
MARGIN = 0
E4M3, E5M2 = (3, -6, 448.0), (2, -14, 57344.0)  # Bits of the fraction, least exponent, largest number.


def pattern(rows, columns, factor, shift):
    return ((np.arange(rows * columns) * factor + shift) % 129 - 64).reshape(rows, columns) / 64.0


def rounded(x, fmt):
    fraction, least, largest = fmt
    x = np.clip(x, -largest, largest)
    exponent = np.maximum(np.frexp(np.where(x == 0, 1.0, x))[1] - 1, least)
    unit = np.ldexp(1.0, exponent - fraction)
    return np.rint(x / unit) * unit  # np.rint rounds ties to even.


class Scaled:
    """A tensor's scale and history."""

    def __init__(self, fmt, length):
        self.fmt, self.history, self.scale, self.amax = fmt, np.zeros(length), 1.0, 0.0

    def __call__(self, x):
        self.amax = np.abs(x).max()
        return rounded(x * self.scale, self.fmt) / self.scale

    def end_step(self):
        self.history = np.append(self.history[1:], self.amax)
        if self.history.max() > 0:
            self.scale = self.fmt[2] / self.history.max() / 2**MARGIN


def train(length):
    weights = [pattern(WIDTH, WIDTH, 53, 7 * layer) for layer in range(2)]
    moments = [[np.zeros_like(w), np.zeros_like(w)] for w in weights]
    scaled = [{"input": Scaled(E4M3, length), "weight": Scaled(E4M3, length), "output_gradient": Scaled(E5M2, length)}
              for _ in weights]
    steps = []
    for step in range(1, STEPS + 1):
        x, target = pattern(TOKENS, WIDTH, 37, 11 * step) * SIZES[step - 1], pattern(TOKENS, WIDTH, 29, 5 * step)
        y, inputs, by = x, [], []
        for w, of in zip(weights, scaled):
            inputs.append(of["input"](y))
            by.append(of["weight"](w))
            y = inputs[-1] @ by[-1].T
        difference = y - target
        loss = float((difference**2).sum() / (TOKENS * WIDTH))
        dy, gradients = 2 * difference / (TOKENS * WIDTH), [None, None]
        for layer in (1, 0):
            narrow = scaled[layer]["output_gradient"](dy)
            gradients[layer] = narrow.T @ inputs[layer]
            dy = narrow @ by[layer]
        for w, (m, v), g in zip(weights, moments, gradients):
            m += (1 - BETA1) * (g - m)
            v += (1 - BETA2) * (g * g - v)
            update = (m / (1 - BETA1**step)) / (np.sqrt(v / (1 - BETA2**step)) + EPSILON)
            w -= RATE * (DECAY * w + update)
        for of in scaled:
            for tensor in of.values():
                tensor.end_step()
        steps.append({"loss": loss, "gradient_norm": float(np.sqrt(sum((g * g).sum() for g in gradients))),
                      "amax": [{name: float(t.amax) for name, t in of.items()} for of in scaled]})
    return {"history": length, "steps": steps, "weights": [w.flatten().tolist() for w in weights]}


print(json.dumps({"runs": [train(1024), train(3)]}, indent=1))
