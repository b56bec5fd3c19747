"""Writes gpt_oss.golden beside itself, from an independent public implementation.

pip install "transformers==5.24.0" "torch==2.15.0"
"""
import math
import pathlib

import numpy as np
import torch
from golden import BATCH, SEQUENCE, VOCAB, normal, hash_name, random_bits, tokens, weight, write
from transformers import GptOssConfig, GptOssForCausalLM
from transformers.models.gpt_oss import modeling_gpt_oss

HERE = pathlib.Path(__file__).parent
EXPERTS, WIDTH, HIDDEN, HEAD = 4, 5, 12, 8
BASE, FACTOR, ORIGINAL, FAST, SLOW = 100.0, 4.0, 16, 2.0, 0.25

config = GptOssConfig(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=WIDTH, num_hidden_layers=4,
                      num_attention_heads=4, num_key_value_heads=2, head_dim=HEAD, max_position_embeddings=16,
                      rms_norm_eps=1e-5, tie_word_embeddings=False, num_local_experts=EXPERTS, num_experts_per_tok=2,
                      sliding_window=3, swiglu_limit=1.0,
                      rope_parameters={"rope_type": "yarn", "rope_theta": BASE, "factor": FACTOR, "beta_fast": FAST,
                                       "beta_slow": SLOW, "truncate": False,
                                       "original_max_position_embeddings": ORIGINAL},
                      attn_implementation="eager", experts_implementation="eager")
assert config.layer_types == ["sliding_attention", "full_attention"] * 2


# --- What that code computes in f32 whatever the model's dtype, here in f64.
class Norm(torch.nn.Module):
    def __init__(self, hidden_size, eps):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, x):
        return self.weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.eps)


# By the paper's formula.
class Rotary(torch.nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, x, position_ids):
        half = HEAD // 2
        pair = [half * math.log(ORIGINAL / (turns * 2 * math.pi)) / math.log(BASE) for turns in (FAST, SLOW)]
        low, high = max(pair[0], 0.0), min(pair[1], HEAD - 1.0)
        ramp = ((torch.arange(half, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
        plain = BASE ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = position_ids[..., None].double() * (plain * (1 - ramp) + plain / FACTOR * ramp)
        scale = 0.1 * math.log(FACTOR) + 1
        return angle.cos() * scale, angle.sin() * scale


# The same in f32, which shows that the formula is that code's.
public = modeling_gpt_oss.GptOssRotaryEmbedding(config)
positions = torch.arange(SEQUENCE)[None]
for mine, theirs in zip(Rotary(config)(None, positions), public(torch.zeros(1), positions)):
    assert torch.allclose(mine.float(), theirs, atol=1e-6), (mine, theirs)

modeling_gpt_oss.GptOssRMSNorm = Norm
modeling_gpt_oss.GptOssRotaryEmbedding = Rotary
model = GptOssForCausalLM(config).double().eval()


# The public checkpoint has tensors of all experts with gate and up in turn, as [in, out].
def of_expert(layer, e, parts, shape):
    kind = "weight" if len(shape) == 2 else "bias"
    tensors = [torch.tensor(weight(f"{layer}.experts.{e}.{part}.{kind}", shape)) for part in parts]
    return torch.stack(tensors, 1).reshape(-1, *shape[1:]).movedim(0, -1)


def value(name, shape):
    layer, found, kind = name.partition(".experts.")
    if not found:
        return torch.tensor(weight(name, shape))
    parts = ["gate_proj", "up_proj"] if kind.startswith("gate_up") else ["down_proj"]
    rows = shape[-1] // len(parts)
    inner = (rows,) if kind.endswith("bias") else (rows, shape[1])
    return torch.stack([of_expert(layer, e, parts, inner) for e in range(EXPERTS)])


# By our names, the opposite of the above.
def gradients():
    for name, parameter in model.named_parameters():
        layer, found, kind = name.partition(".experts.")
        if not found:
            yield name, parameter.grad
            continue
        parts = ["gate_proj", "up_proj"] if kind.startswith("gate_up") else ["down_proj"]
        for e in range(EXPERTS):
            for i, part in enumerate(parts):
                own = parameter.grad[e][..., i::len(parts)]
                yield (f"{layer}.experts.{e}.{part}.{'bias' if kind.endswith('bias') else 'weight'}",
                       own if kind.endswith("bias") else own.T)


with torch.no_grad():
    for name, parameter in model.named_parameters():
        parameter.copy_(value(name, tuple(parameter.shape)))
targets = torch.tensor([random_bits(6, 0, i) % VOCAB for i in range(BATCH * SEQUENCE)])
clamped = []
gate_of = modeling_gpt_oss.GptOssExperts._apply_gate
modeling_gpt_oss.GptOssExperts._apply_gate = lambda self, x: (clamped.append((x.abs() > 1).double().mean().item()),
                                                              gate_of(self, x))[1]
logits = model(torch.tensor(tokens()).reshape(BATCH, SEQUENCE)).logits
assert logits.dtype == torch.float64
torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets).backward()
print("beyond the limit:", np.mean(clamped))

HEADER = """# Logits and gradients of GptOssForCausalLM, transformers 5.24.0 with torch 2.15.0 in f64 on the CPU, eager attention. What
# that code computes in f32 (RMSNorm, the rotary table) is replaced by the same in f64. Made by make_gpt_oss.py.
# layers 4, hidden 12, heads 4, kv_heads 2, head_dim 8, vocab 11, norm_eps 1e-5, rope_base 100, untied, window 3; 2 of 4 experts
# of width 5, swiglu_limit 1; yarn: factor 4, betas 2 and 0.25, original_max_seq 16.
# Weights: 0.3 Normal(11, HashName(name), i) of common/rng.h, i the row-major index of the [out, in] matrix; gains of
# norms 1 + 0.1 Normal. Tokens: RandomBits(5, 0, i) % 11. One line of logits a token, two sequences of 7.
# Gradients are of the mean cross-entropy of targets RandomBits(6, 0, i) % 11. Of each tensor: its norm, and its product with
# Normal(13, HashName(name), i).
"""
write(HERE / "gpt_oss.golden", HEADER, logits.detach().numpy(), digits=17)
with open(HERE / "gpt_oss.golden", "a") as out:
    for name, gradient in gradients():
        flat = gradient.reshape(-1).tolist()
        along = sum(g * normal(13, hash_name(name), i) for i, g in enumerate(flat))
        out.write(f"gradient {name} {math.sqrt(sum(g * g for g in flat)):.17g} {along:.17g}\n")
