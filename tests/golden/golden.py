"""Weights and tokens of the golden models: those of common/rng.h, by the public names of the tensors."""
import math

import numpy as np

SEED = 11
BATCH, SEQUENCE, VOCAB = 2, 7, 11
MASK = (1 << 64) - 1


# --- common/rng.h
def mix(z):
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def random_bits(seed, stream, index):
    return mix(mix(mix(seed) ^ stream) ^ index)


def uniform(seed, stream, index):
    return ((random_bits(seed, stream, index) >> 12) + 0.5) * 2.0**-52


def normal(seed, stream, index):
    u, v = uniform(seed, stream, 2 * index), uniform(seed, stream, 2 * index + 1)
    return math.sqrt(-2 * math.log(u)) * math.cos(6.283185307179586 * v)


def hash_name(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


# --- weights by the public names, matrices [out, in]
def weight(name, shape):
    values = [normal(SEED, hash_name(name), i) for i in range(math.prod(shape))]
    gain = any(part in name for part in ("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight"))
    scaled = np.array(values).reshape(shape) * (0.1 if gain else 0.3)
    return 1 + scaled if gain else scaled


def tokens():
    return [random_bits(5, 0, i) % VOCAB for i in range(BATCH * SEQUENCE)]


def write(path, header, logits, digits=9):
    """`header` has comment lines; `logits` is [BATCH, SEQUENCE, VOCAB]."""
    with open(path, "w") as out:
        out.write(header)
        out.write("tokens " + " ".join(map(str, tokens())) + "\n")
        for row in np.asarray(logits).reshape(BATCH * SEQUENCE, VOCAB):
            out.write(" ".join(f"{x:.{digits}g}" for x in row) + "\n")
