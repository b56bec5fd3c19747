"""Writes llama_soft_cap.golden beside itself: a Llama whose attention scores are capped, in f64.

pip install numpy. No public implementation has a Llama with this cap, so the forward pass is written out here. Without
the cap it must give the logits of llama_logits.golden, which are the public implementation's.
"""
import pathlib

import numpy as np
from golden import BATCH, SEQUENCE, VOCAB, tokens, weight, write

HERE = pathlib.Path(__file__).parent
LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 2, 16, 24, 4, 2, 4
EPS, BASE, CAP = 1e-5, 10000.0, 0.75


def norm(x, name):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight(name, [HIDDEN])


def linear(x, name, width):
    return x @ weight(name, [width, x.shape[-1]]).T


def rotate(x):
    """x: [batch, sequence, heads, dims]; pairs (i, i + dims / 2)."""
    half = HEAD_DIM // 2
    angle = np.arange(SEQUENCE)[:, None] * BASE ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[None, :, None], np.sin(angle)[None, :, None]
    low, high = x[..., :half], x[..., half:]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)


def attention(x, name, cap):
    def heads(part, count):
        return linear(x, f"{name}.{part}.weight", count * HEAD_DIM).reshape(BATCH, SEQUENCE, count, HEAD_DIM)

    q, k, v = rotate(heads("q_proj", HEADS)), rotate(heads("k_proj", KV_HEADS)), heads("v_proj", KV_HEADS)
    k, v = (np.repeat(y, HEADS // KV_HEADS, axis=2) for y in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(HEAD_DIM)
    if cap:
        scores = cap * np.tanh(scores / cap)
    scores = np.where(np.tri(SEQUENCE, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum("bhqk,bkhd->bqhd", weights, v).reshape(BATCH, SEQUENCE, HEADS * HEAD_DIM)
    return linear(mixed, f"{name}.o_proj.weight", HIDDEN)


def mlp(x, name):
    gate, up = linear(x, f"{name}.gate_proj.weight", FFN), linear(x, f"{name}.up_proj.weight", FFN)
    return linear(gate / (1 + np.exp(-gate)) * up, f"{name}.down_proj.weight", HIDDEN)


def logits(cap):
    x = weight("model.embed_tokens.weight", [VOCAB, HIDDEN])[np.array(tokens()).reshape(BATCH, SEQUENCE)]
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        x = x + attention(norm(x, f"{name}.input_layernorm.weight"), f"{name}.self_attn", cap)
        x = x + mlp(norm(x, f"{name}.post_attention_layernorm.weight"), f"{name}.mlp")
    return linear(norm(x, "model.norm.weight"), "lm_head.weight", VOCAB)


lines = (HERE / "llama_logits.golden").read_text().splitlines()
public = np.array([line.split() for line in lines if line[0] not in "#t"], dtype=float)
difference = np.linalg.norm(logits(None).reshape(public.shape) - public) / np.linalg.norm(public)
assert difference < 1e-6, f"without the cap, logits differ from the public implementation's by {difference}"

write(HERE / "llama_soft_cap.golden", f"""# Logits of a Llama whose attention scores are capped, numpy in f64. Made by make_soft_cap.py.
# layers {LAYERS}, hidden {HIDDEN}, ffn {FFN}, heads {HEADS}, kv_heads {KV_HEADS}, vocab {VOCAB}, norm_eps 1e-5, rope_base 10000, untied,
# attention_soft_cap {CAP}. Weights and tokens are those of llama_logits.golden.
""", logits(CAP), digits=17)
print(f"without the cap: {difference:.1e} from the public implementation; the cap changes logits by",
      np.linalg.norm(logits(CAP) - logits(None)) / np.linalg.norm(logits(None)))
