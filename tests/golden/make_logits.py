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


def fill(params, rename):
    flat = flatten_dict(params)
    for key, old in flat.items():
        name, transposed = rename(key)
        new = weight(name, old.shape[::-1] if transposed else old.shape)
        flat[key] = jnp.asarray(new.T if transposed else new, dtype=jnp.float64)
    return unflatten_dict(flat)


def llama_name(key):
    if key[-1] == "embedding":
        return "model.embed_tokens.weight", False
    if key[-1] == "kernel":  # Dense: [in, out].
        return ".".join(key[:-1]) + ".weight", True
    return ".".join(key), False


def gpt2_name(key):
    if key[-1] == "bias":
        return ".".join(key), False
    return ".".join(key[:-1]) + ".weight", False  # FlaxConv1D keeps its kernel [out, in].


HEADER = """# Logits of {model}, transformers 4.44.2 with jax 0.4.30 in f64 on the CPU (that code takes
# norms, softmax and rotations in f32, hence agreement to about 1e-7). Made by make_logits.py.
# {config}
# Weights: 0.3 Normal(11, HashName(name), i) of common/rng.h, i the row-major index of the [out, in] matrix; gains of
# norms 1 + 0.1 Normal. Tokens: RandomBits(5, 0, i) % 11. One line of logits a token, two sequences of 7.
"""


def write(file, model, rename, config):
    tokens = [random_bits(5, 0, i) % VOCAB for i in range(BATCH * SEQUENCE)]
    model.params = fill(model.params, rename)
    logits = model(jnp.asarray(np.array(tokens).reshape(BATCH, SEQUENCE))).logits
    with open(HERE / file, "w") as out:
        out.write(HEADER.format(model=type(model).__name__, config=config))
        out.write("tokens " + " ".join(map(str, tokens)) + "\n")
        for row in np.asarray(logits).reshape(BATCH * SEQUENCE, VOCAB):
            out.write(" ".join(f"{x:.9g}" for x in row) + "\n")


llama = LlamaConfig(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, max_position_embeddings=16, rms_norm_eps=1e-5, hidden_act="silu",
                    tie_word_embeddings=False)
write("llama_logits.golden", FlaxLlamaForCausalLM(llama, dtype=jnp.float64), llama_name,
      "layers 2, hidden 16, ffn 24, heads 4, kv_heads 2, vocab 11, norm_eps 1e-5, rope_base 10000, untied")

gpt2 = GPT2Config(vocab_size=VOCAB, n_positions=16, n_embd=12, n_layer=2, n_head=3, n_inner=48, resid_pdrop=0,
                  embd_pdrop=0, attn_pdrop=0, activation_function="gelu_new", layer_norm_epsilon=1e-5)
write("gpt3_logits.golden", FlaxGPT2LMHeadModel(gpt2, dtype=jnp.float64), gpt2_name,
      "layers 2, hidden 12, ffn 48, heads 3, vocab 11, norm_eps 1e-5, activation gelu_new, tied")
