"""Writes llama_logits.golden and gpt3_logits.golden beside itself, from an independent public implementation.

pip install "transformers==4.44.2" "jax==0.4.30" "jaxlib==0.4.30" "flax==0.8.5" "numpy<2" "scipy<1.14"
"""
import os
import pathlib

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from golden import BATCH, SEQUENCE, VOCAB, tokens, weight, write
from transformers import FlaxLlamaForCausalLM, LlamaConfig, FlaxGPT2LMHeadModel, GPT2Config

jax.config.update("jax_enable_x64", True)
HERE = pathlib.Path(__file__).parent


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


def make(file, model, rename, config):
    model.params = fill(model.params, rename)
    logits = model(jnp.asarray(np.array(tokens()).reshape(BATCH, SEQUENCE))).logits
    write(HERE / file, HEADER.format(model=type(model).__name__, config=config), logits)


llama = LlamaConfig(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, max_position_embeddings=16, rms_norm_eps=1e-5, hidden_act="silu",
                    tie_word_embeddings=False)
make("llama_logits.golden", FlaxLlamaForCausalLM(llama, dtype=jnp.float64), llama_name,
     "layers 2, hidden 16, ffn 24, heads 4, kv_heads 2, vocab 11, norm_eps 1e-5, rope_base 10000, untied")

gpt2 = GPT2Config(vocab_size=VOCAB, n_positions=16, n_embd=12, n_layer=2, n_head=3, n_inner=48, resid_pdrop=0,
                  embd_pdrop=0, attn_pdrop=0, activation_function="gelu_new", layer_norm_epsilon=1e-5)
make("gpt3_logits.golden", FlaxGPT2LMHeadModel(gpt2, dtype=jnp.float64), gpt2_name,
     "layers 2, hidden 12, ffn 48, heads 3, vocab 11, norm_eps 1e-5, activation gelu_new, tied")
