"""Writes llama_logits.golden and gpt3_logits.golden beside itself, from an independent public implementation.

pip install "transformers==4.44.2" "jax==0.4.30" "jaxlib==0.4.30" "flax==0.8.5" "numpy<2" "scipy<1.14"
"""
import math
import os
import pathlib

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from transformers import FlaxLlamaForCausalLM, LlamaConfig, FlaxGPT2LMHeadModel, GPT2Config

jax.config.update("jax_enable_x64", True)
HERE = pathlib.Path(__file__).parent
M = (1 << 64) - 1


# common/rng.h
def mix(z):
    z = (z + 0x9e3779b97f4a7c15) & M
    z = ((z ^ (z >> 30)) * 0xbf58476d1ce4e5b9) & M
    z = ((z ^ (z >> 27)) * 0x94d049bb133111eb) & M
    return z ^ (z >> 31)
def bits(seed, stream, i): return mix(mix(mix(seed) ^ stream) ^ i)
def uniform(s, t, i): return ((bits(s, t, i) >> 12) + 0.5) * 2.0**-52
def normal(s, t, i):
    return math.sqrt(-2 * math.log(uniform(s, t, 2*i))) * math.cos(6.283185307179586 * uniform(s, t, 2*i+1))
def name_hash(n):
    h = 0xcbf29ce484222325
    for c in n.encode(): h = ((h ^ c) * 0x100000001b3) & M
    return h
SEED = 11
def weight(name, shape):  # global, [out, in]
    v = np.array([normal(SEED, name_hash(name), i) for i in range(int(np.prod(shape)))]).reshape(shape)
    gain = name.endswith("norm.weight") or any(x in name for x in ("ln_1.weight", "ln_2.weight", "ln_f.weight"))
    return 1 + 0.1 * v if gain else 0.3 * v
def fill(model, rename):
    flat = flatten_dict(model.params)
    for k, old in flat.items():
        name, transpose = rename(k)
        shape = old.shape[::-1] if transpose else old.shape
        w = weight(name, shape)
        flat[k] = jnp.asarray(w.T if transpose else w, dtype=jnp.float64)
        assert flat[k].shape == old.shape, (k, flat[k].shape, old.shape)
    return unflatten_dict(flat)
def llama_name(k):
    if k[-1] == "embedding": return "model.embed_tokens.weight", False
    if k[-1] == "kernel": return ".".join(k[:-1]) + ".weight", True   # flax Dense: [in, out]
    return ".".join(k), False
def gpt_name(k):
    base = ".".join(k[:-1])
    if k[-1] == "kernel": return base + ".weight", False  # FlaxConv1D stores [out, in]
    if k[-1] in ("embedding", "scale"): return base + ".weight", False
    return ".".join(k), False
def write(path, what, tokens, logits):
    with open(path, "w") as f:
        f.write(what)
        f.write("tokens " + " ".join(map(str, tokens)) + "\n")
        for row in logits: f.write(" ".join(f"{x:.9g}" for x in row) + "\n")
B, S, V = 2, 7, 11
tokens = [bits(5, 0, i) % V for i in range(B * S)]
ids = jnp.asarray(np.array(tokens).reshape(B, S))
HOW = """# Logits of {model}, transformers 4.44.2 with jax 0.4.30 in f64 on the CPU (that code takes
# norms, softmax and rotations in f32, hence agreement to about 1e-7).
# {config}
# Weights: 0.3 Normal(11, HashName(name), i) of common/rng.h, i the row-major index of the [out, in] matrix; gains of
# norms 1 + 0.1 Normal. Tokens: RandomBits(5, 0, i) % 11. One line of {v} logits a token, two sequences of {s}.
"""
c = LlamaConfig(vocab_size=V, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=16, rms_norm_eps=1e-5, rope_theta=10000.0,
                tie_word_embeddings=False, hidden_act="silu")
m = FlaxLlamaForCausalLM(c, dtype=jnp.float64)
m.params = fill(m, llama_name)
out = m(ids).logits
write(HERE / "llama_logits.golden", HOW.format(model="FlaxLlamaForCausalLM", v=V, s=S,
  config="layers 2, hidden 16, ffn 24, heads 4, kv_heads 2, vocab 11, max_seq 16, norm_eps 1e-5, rope_base 10000, untied"),
  tokens, np.asarray(out).reshape(B*S, V))
c = GPT2Config(vocab_size=V, n_positions=16, n_embd=12, n_layer=2, n_head=3, n_inner=48, activation_function="gelu_new",
               layer_norm_epsilon=1e-5, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
m = FlaxGPT2LMHeadModel(c, dtype=jnp.float64)
m.params = fill(m, gpt_name)
out = m(ids).logits
write(HERE / "gpt3_logits.golden", HOW.format(model="FlaxGPT2LMHeadModel", v=V, s=S,
  config="layers 2, hidden 12, ffn 48, heads 3, vocab 11, max_seq 16, norm_eps 1e-5, activation gelu_new, tied"),
  tokens, np.asarray(out).reshape(B*S, V))
