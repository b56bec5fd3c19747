"""Writes qwen3_moe_logits.golden beside itself, from an independent public implementation.

pip install "transformers==5.23.0" "torch==2.15.0"
"""
import pathlib

import torch
from golden import BATCH, SEQUENCE, VOCAB, tokens, weight, write
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

HERE = pathlib.Path(__file__).parent
EXPERTS, WIDTH, HIDDEN = 6, 5, 12

config = Qwen3MoeConfig(vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=4,
                        num_key_value_heads=2, head_dim=4, max_position_embeddings=16, rms_norm_eps=1e-6,
                        hidden_act="silu", tie_word_embeddings=False, num_experts=EXPERTS, num_experts_per_tok=2,
                        moe_intermediate_size=WIDTH, norm_topk_prob=True, decoder_sparse_step=1,
                        rope_theta=1e6, attn_implementation="eager", experts_implementation="eager")
model = Qwen3MoeForCausalLM(config).double().eval()


# The public checkpoint has a tensor for each expert; the module, one for all.
def value(name, shape):
    layer, found, kind = name.partition(".experts.")
    if not found:
        return torch.tensor(weight(name, shape))
    parts = ["gate_proj", "up_proj"] if kind == "gate_up_proj" else ["down_proj"]
    rows = shape[1] // len(parts)
    return torch.stack([
        torch.cat([torch.tensor(weight(f"{layer}.experts.{e}.{part}.weight", (rows, shape[2]))) for part in parts])
        for e in range(EXPERTS)])


with torch.no_grad():
    for name, parameter in model.named_parameters():
        parameter.copy_(value(name, tuple(parameter.shape)))
    logits = model(torch.tensor(tokens()).reshape(BATCH, SEQUENCE)).logits

HEADER = """# Logits of Qwen3MoeForCausalLM, transformers 5.23.0 with torch 2.15.0 in f64 on the CPU (that code takes
# norms, softmax and rotations in f32, hence agreement to about 1e-7). Made by make_moe_logits.py.
# layers 2, hidden 12, heads 4, kv_heads 2, head_dim 4, vocab 11, norm_eps 1e-6, rope_base 1e6, untied; 2 of 6 experts of
# width 5, normalised.
# Weights: 0.3 Normal(11, HashName(name), i) of common/rng.h, i the row-major index of the [out, in] matrix; gains of
# norms 1 + 0.1 Normal. Tokens: RandomBits(5, 0, i) % 11. One line of logits a token, two sequences of 7.
"""
write(HERE / "qwen3_moe_logits.golden", HEADER, logits.numpy())
