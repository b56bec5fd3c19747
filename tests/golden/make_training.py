"""Writes training/*.golden: 30 steps of each job spec beside them, by an independent public implementation.

pip install "transformers==5.23.0" "torch==2.15.0" pyyaml
make_training.py [NAME...]     Only these; otherwise all.
"""
import json
import math
import pathlib
import sys

import golden
import torch
import yaml

# What that code takes in f32 for speed (norms, softmax, rotations) is taken in f64 here.
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)

from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig,  # noqa: E402
                          Qwen3MoeForCausalLM)

HERE = pathlib.Path(__file__).parent / "training"
RANKS = 2


# --- The models. A spec's own words; what it leaves to a preset is the published config's.
def llama(fields):
    assert fields["preset"] == "llama3.2-1b"
    m = fields["overrides"]
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=m["vocab"], hidden_size=m["hidden"], intermediate_size=m["ffn"], num_hidden_layers=m["layers"],
        num_attention_heads=m["heads"], num_key_value_heads=m["kv_heads"], head_dim=m["hidden"] // m["heads"],
        max_position_embeddings=m["max_seq"], rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=True,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
        attn_implementation="eager"))


def gpt3(fields):
    m = fields["architecture"]
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=m["vocab"], n_positions=m["max_seq"], n_embd=m["hidden"], n_layer=m["layers"], n_head=m["heads"],
        n_inner=m["ffn"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, activation_function="gelu_new",
        layer_norm_epsilon=1e-5, attn_implementation="eager"))


def qwen3_moe(fields):
    m = fields["architecture"]
    moe = m["moe"]
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(
        vocab_size=m["vocab"], hidden_size=m["hidden"], num_hidden_layers=m["layers"], num_attention_heads=m["heads"],
        num_key_value_heads=m["kv_heads"], head_dim=m["head_dim"], max_position_embeddings=m["max_seq"],
        rms_norm_eps=m["norm_eps"], rope_theta=m["rope_base"], hidden_act="silu", tie_word_embeddings=False,
        num_experts=moe["experts"], num_experts_per_tok=moe["top_k"], moe_intermediate_size=moe["expert_ffn"],
        norm_topk_prob=True, decoder_sparse_step=1, attn_implementation="eager", experts_implementation="eager"))


# --- Initial values: a normal deviate by (seed, public name, index) with the published deviations.
def normal(seed, name, shape, deviation):
    stream = golden.hash_name(name)
    values = [deviation * golden.normal(seed, stream, i) for i in range(math.prod(shape))]
    return torch.tensor(values).reshape(shape)


def initial(seed, name, shape, layers):
    if len(shape) == 1:
        return torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
    of_residual = any(part in name for part in ("o_proj", "down_proj", "c_proj"))
    deviation = 0.02 / math.sqrt(2 * layers) if of_residual else 0.02
    if ".experts." in name:  # One tensor for all experts here; one for each in the public checkpoint.
        layer, kind = name.split(".experts.")
        parts = ["gate_proj", "up_proj"] if kind == "gate_up_proj" else ["down_proj"]
        rows = shape[1] // len(parts)
        return torch.stack([torch.cat([normal(seed, f"{layer}.experts.{e}.{part}.weight", (rows, shape[2]), deviation)
                                       for part in parts]) for e in range(shape[0])])
    if ".c_" in name:  # GPT-2's matrices are [in, out].
        return normal(seed, name, shape[::-1], deviation).T
    return normal(seed, name, shape, deviation)


# --- The data: a file's bytes, cut into samples, in an order that is new each time round.
IGNORED = -100  # As PyTorch's ignore_index.


class Corpus:
    def __init__(self, spec):
        self.length, self.seed = spec["batch"]["sequence"], spec["seed"]
        (kind, data), = spec["data"].items()
        text, fraction = (HERE / "corpus.txt").read_bytes(), data["validation_fraction"]
        self.begins = set()  # The first tokens of documents, which are not counted as targets.
        if kind == "text":
            self.tokens, self.split = text, len(text) - int(fraction * len(text))
            return
        assert data["eod_mask_loss"]
        words = text.split()  # Each is a document.
        self.tokens = b"".join(words)
        starts = [0]
        for word in words:
            starts.append(starts[-1] + len(word))
        self.begins = set(starts)
        self.split = starts[len(words) - max(1, int(fraction * len(words)))]

    def sample(self, first, index):
        """Its inputs and its targets."""
        first += index * self.length
        tokens = self.tokens[first:first + self.length + 1]
        targets = [IGNORED if first + i in self.begins else tokens[i] for i in range(1, len(tokens))]
        return list(tokens[:-1]), targets

    def training(self, position):
        samples = (self.split - 1) // self.length
        key = golden.random_bits(self.seed, golden.hash_name("data/epoch"), position // samples)
        return self.sample(0, permute(key, samples, position % samples))

    def validation(self, position):
        samples = (len(self.tokens) - self.split - 1) // self.length
        return self.sample(self.split, position % samples)


def permute(key, size, x):
    """train/data/permutation.h: a Feistel network of 8 rounds, walked until it falls below the size."""
    bits = (size - 1).bit_length()
    low_bits = bits // 2
    low_mask, high_mask = (1 << low_bits) - 1, (1 << (bits - low_bits)) - 1
    while True:
        low, high = x & low_mask, x >> low_bits
        for i in range(0, 8, 2):
            high ^= golden.random_bits(key, i, low) & high_mask
            low ^= golden.random_bits(key, i + 1, high) & low_mask
        x = high << low_bits | low
        if x < size:
            return x


# --- A step.
def mean_entropy(logits, targets):
    """Over all targets that are not ignored."""
    return torch.nn.functional.cross_entropy(torch.cat(logits), torch.tensor(targets), ignore_index=IGNORED)


def forward(model, samples, moe):
    """The logits of all tokens, and the mean over tokens of the load-balancing loss, summed over layers."""
    tokens = torch.tensor([inputs for inputs, _ in samples])
    out = model(tokens, **({"output_router_logits": True} if moe else {}))
    balance = 0.0
    for logits in (out.router_logits if moe else []):
        p = torch.softmax(logits, -1)
        chosen = torch.topk(p, moe["top_k"], -1).indices
        fraction = torch.bincount(chosen.flatten(), minlength=moe["experts"]) / chosen.numel()
        balance = balance + moe["experts"] * (fraction * p.mean(0)).sum()
    return out.logits.flatten(0, 1), balance


def targets_of(samples):
    return [target for _, targets in samples for target in targets]


def learning_rate(optimizer, step, steps):
    (shape, schedule), = optimizer["schedule"].items()
    peak, warmup = optimizer["adamw"]["learning_rate"], schedule["warmup_steps"]
    if step <= warmup:
        return peak * step / warmup
    progress, last = (step - warmup) / (steps - warmup), peak * schedule.get("min_ratio", 1)
    factor = {"constant": 1, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}[shape]
    return last + (peak - last) * factor


def run(name, make):
    spec = yaml.safe_load((HERE / f"{name}.yaml").read_text())
    for field in ("learning_rate", "epsilon"):  # PyYAML takes 1e-4 for a text.
        spec["optimizer"]["adamw"][field] = float(spec["optimizer"]["adamw"][field])
    fields = spec["model"].get("architecture", {})
    if "norm_eps" in fields:
        fields["norm_eps"] = float(fields["norm_eps"])
    moe, optimizer, corpus = fields.get("moe"), spec["optimizer"], Corpus(spec)
    model = make(spec["model"])
    layers = model.config.num_hidden_layers
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            parameter.copy_(initial(spec["seed"], parameter_name, tuple(parameter.shape), layers))
    adamw = optimizer["adamw"]
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": adamw["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    update = torch.optim.AdamW(groups, betas=(adamw["beta1"], adamw["beta2"]), eps=adamw["epsilon"], foreach=False)
    batch, validation = spec["batch"], spec["validation"]
    micro = batch["micro"] * RANKS  # Of both ranks together.
    lines, clipped = [], 0
    for step in range(1, spec["steps"] + 1):
        update.zero_grad()
        samples = [corpus.training((step - 1) * batch["global"] + i) for i in range(batch["global"])]
        logits, balances = [], 0.0
        for first in range(0, batch["global"], micro):
            of_micro, balance = forward(model, samples[first:first + micro], moe)
            logits.append(of_micro)
            balances = balances + balance * micro / batch["global"]
        entropy = mean_entropy(logits, targets_of(samples))
        (entropy + (moe["aux_loss"] * balances if moe else 0.0)).backward()
        loss = entropy.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer["clip_norm"]).item()
        clipped += norm > optimizer["clip_norm"]
        rate = learning_rate(optimizer, step, spec["steps"])
        for group in update.param_groups:
            group["lr"] = rate
        update.step()
        line = {"step": step, "loss": loss, "grad_norm": norm, "learning_rate": rate}
        if step % validation["every_steps"] == 0 or step == spec["steps"]:
            count = validation["batches"] * batch["global"]
            samples = [corpus.validation(i) for i in range(count)]
            with torch.no_grad():
                logits = [forward(model, [sample], moe)[0] for sample in samples]
                line["validation_loss"] = mean_entropy(logits, targets_of(samples)).item()
        lines.append(line)
    assert 5 < clipped, f"{name}: only {clipped} steps of {spec['steps']} are clipped"
    (HERE / f"{name}.golden").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(name, "clipped", clipped, "first", lines[0], "last", lines[-1])


for name, make in [("llama", llama), ("llama_eod", llama), ("gpt3", gpt3), ("gpt3_eod", gpt3),
                   ("qwen3_moe", qwen3_moe), ("qwen3_moe_eod", qwen3_moe)]:
    if not sys.argv[1:] or name in sys.argv[1:]:
        run(name, make)
