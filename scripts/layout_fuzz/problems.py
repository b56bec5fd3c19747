"""What scripts/layout_fuzz.py draws: a problem, which all layouts must train alike, and layouts.

Everything is a function of a random generator, and legal by construction: a spec that is refused is
a finding, as a wrong number is.
"""
import itertools
import math
import re

RANKS = 8  # At most, of a layout.
TOKENS = 32  # Of the files of tokens and of the tokenizer; the least vocabulary.
# By name: the numbers of chunks of a stage, and whether the micro-batches come in whole rounds.
SCHEDULES = {
    "GPIPE": ((1,), False),
    "ONE_F_ONE_B": ((1,), False),
    "INTERLEAVED_ONE_F_ONE_B": ((2, 3), True),
    "ZERO_BUBBLE": ((1,), False),
    "V_HALF": ((2,), False),
    "V_MIN": ((2,), False),
    "V_ZB": ((2,), False),
}
# Sizes that the tensor ranks divide, where a model has them.
DIVIDED = ("heads", "ffn", "vocab", "moe.shared_ffn", "mamba_heads", "mamba_groups")
TAPS = 3  # Of convolutions.


def draw_sizes(rng, grouped):
    """Values by the name of a field, of which a family takes those that it has."""
    heads = rng.choice((4, 6, 8, 12))
    head_dim = rng.choice((4, 8))
    pattern = rng.sample("ME*", 3) + rng.choices("ME*-", k=rng.randint(0, 2))
    return {
        "layers": rng.randint(2, 5),
        "hybrid_pattern": "".join(pattern),
        "hidden": heads * head_dim,
        "heads": heads,
        "kv_heads": rng.choice([n for n in (1, 2, 3, 4, 6, 8, 12) if heads % n == 0])
        if grouped else heads,
        "head_dim": head_dim,
        "ffn": heads * rng.randint(2, 5),
        "vocab": heads * rng.choice((8, 12, 16)),
        "max_seq": 64,
        "tied": rng.random() < 0.5,
        "window": 7,
        "global_every": 2,
        "dense_layers": 1,
        "q_lora_rank": rng.choice((0, 8)),
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 2,
        "v_head_dim": 4,
        "yarn_original_max_seq": 32,
        "mamba_heads": heads,
        "mamba_groups": heads // rng.choice((1, 2)),
        "mamba_head_dim": 4,
        "mamba_state": 4,
        "mamba_taps": TAPS,
        "moe_latent": rng.choice((0, 6)),
        "sample_size": rng.choice((8, 12)),
        "patch_size": 2,
        "in_channels": 1,
        "num_classes": 3,
        "num_timesteps": 50,
    } | draw_experts(rng, heads) | draw_seldom(rng)


def draw_experts(rng, heads):
    shared = rng.randint(0, 1)
    experts = {
        "experts": rng.choice((8, 12, 24)),
        "top_k": 2,
        "expert_ffn": rng.choice((8, 12)),
        "router": rng.choice(("SOFTMAX", "SIGMOID")),
        "expert_bias": rng.random() < 0.3,
        "bias_update_rate": 0.01,
        "aux_loss": rng.choice((0, 0.01, 0.1)),
        "aux_loss_scope": rng.choice(("BATCH", "SEQUENCE", "MODEL")),
        "groups": 2,
        "topk_groups": rng.randint(1, 2),
        "norm_topk": rng.random() < 0.7,
        "routed_scaling": rng.choice((1, 1.5)),
        "shared_experts": shared,
    }
    if shared:
        experts["shared_ffn"] = 2 * heads
    return {f"moe.{name}": value for name, value in experts.items()}


def draw_seldom(rng):
    sizes = {}
    if rng.random() < 0.15:
        sizes["attention_soft_cap"] = 5
    if rng.random() < 0.15:
        sizes |= {"attention_dropout": 0.1, "hidden_dropout": 0.1}
    return sizes


def nested(flat):
    """{"moe.top_k": 2} as {"moe": {"top_k": 2}}."""
    result = {}
    for name, value in flat.items():
        *groups, last = name.split(".")
        place = result
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return result


def draw_data(rng, model):
    if "sample_size" in model:
        return {"arrays": {"latents": f"latents-{model['sample_size']}.npy", "labels": "labels.npy",
                           "label_dropout": 0.2, "validation_fraction": 0.2,
                           "prediction_type": rng.choice(("EPSILON", "V_PREDICTION"))}}
    kind = rng.choice(("synthetic", "synthetic", "indexed", "blend", "chats", "chats", "pairs"))
    if kind == "synthetic":
        return {kind: {}}
    if kind in ("chats", "pairs"):
        return {"chat": {"path": f"{kind}.jsonl", "tokenizer": "tokenizer.json", "format": "chatml",
                         "validation_fraction": 0.2, "too_long": rng.choice(("CUT", "DROP"))}}
    files = {"validation_fraction": 0.2,
             "reset_attention_mask": rng.random() < 0.5,
             "eod_mask_loss": rng.random() < 0.5}
    if kind == "indexed":
        return {kind: {"prefix": "web", **files}}
    return {kind: {"datasets": [{"weight": 2, "prefix": "web"}, {"weight": 1, "prefix": "code"}],
                   **files}}


def draw_patterns(rng, names):
    """Patterns that match one to three of the parameters, or those at the same place of all layers.
    Experts of a layer are trained or kept together."""
    patterns = set()
    for name in rng.sample(names, rng.randint(1, min(3, len(names)))):
        if ".experts." in name:
            name = re.sub(r"\.experts\..*", ".experts.*", name)
        if rng.random() < 0.5:
            name = re.sub(r"\.\d+\.", ".*.", name, count=1)
        patterns.add(name)
    return sorted(patterns)


def draw_adapter(rng, model):
    """An adapter, with what beside it the model's family allows."""
    of_text = "sample_size" not in model
    targets, saved = ["all-linear"], []
    if of_experts := "moe.experts" in model and rng.random() < 0.5:
        targets.append("*.experts.*")
    if of_text and rng.random() < 0.3:  # Norms of DiT have linear layers, which are targets.
        saved.append("*norm*")
    # Of rank 1, beside new weights, gradients behind a norm would be rounding alone.
    return {"lora": {"rank": rng.randint(2, 4), "alpha": rng.choice((2, 8)), "targets": targets,
                     "modules_to_save": saved, "rslora": rng.random() < 0.5,
                     "dora": not of_experts and rng.random() < 0.5,
                     "dropout": 0.2 if of_text and not of_experts and rng.random() < 0.4 else 0}}


class Problem:
    """A spec without a layout, and what a layout must keep to."""

    def __init__(self, rng, families, train_alone):
        """`train_alone` trains a spec, and returns the checkpoints' directory and the names of the
        parameters that are trained."""
        family = rng.choice(families)
        sizes = draw_sizes(rng, family["grouped"])
        self.model = {name: value for name, value in sizes.items() if name in family["fields"]}
        if "hybrid_pattern" in self.model:
            self.model["layers"] = len(self.model["hybrid_pattern"])
        tokens = (self.model["sample_size"] // 2)**2 if "sample_size" in self.model else 0
        data = draw_data(rng, self.model)
        # A pair takes some 28 places at least.
        self.sequence = tokens or rng.choice((32, 48) if "chat" in data else (16, 24, 32, 48))
        self.samples = rng.choice((8, 12, 16, 24))
        self.steps = rng.randint(4, 12)
        self.spec = {
            "name": family["name"].replace("_", "-"),
            "model": {"preset": family["preset"], "overrides": nested(self.model)},
            "precision": "F64",
            "data": data,
            # AdamW divides rounding errors of gradients near zero by epsilon. Lion would make them
            # as large as any other update.
            "optimizer": {rng.choice(("adamw", "muon")): {"learning_rate": 3e-3, "epsilon": 1e-3},
                          "clip_norm": rng.choice((0, 0.5, 1))},
            "seed": rng.randrange(1000),
        }
        if rng.random() < 0.6:
            self.spec["validation"] = {"every_steps": rng.randint(1, 3),
                                       "batches": rng.randint(1, 2)}
        # How many samples one rank computes at a time. Experts may be balanced over all that the
        # ranks of a layout compute at a time.
        self.at_once = rng.choice([n for n in (1, 2, 3, 4, 6, 8, 12) if self.samples % n == 0])
        if data.get("chat", {}).get("path") == "pairs.jsonl":
            self.spec["preference"] = {"method": rng.choice(("DPO", "DPO", "ORPO")), "beta": 0.5}
        if (tuned := rng.random()) < 0.3:
            field = rng.choice(("frozen", "trainable"))
            self.spec[field] = draw_patterns(rng, train_alone(self.one_rank())[1])
        elif tuned < 0.6:
            self.spec["init_from"] = train_alone(self.one_rank())[0]
            self.spec["adapter"] = draw_adapter(rng, self.model)
        self.balanced = (self.model.get("moe.aux_loss", 0) > 0
                         and self.model["moe.aux_loss_scope"] != "SEQUENCE")

    def job(self, micro, devices, more):
        batch = {"global": self.samples, "micro": micro, "sequence": self.sequence}
        return self.spec | {"batch": batch, "steps": self.steps, "devices": devices} | more

    def one_rank(self):
        return self.job(self.at_once, 1, {})

    def draw_layout(self, rng):
        axes = [sizes for sizes in itertools.product(range(1, RANKS + 1), repeat=4)
                if 1 < math.prod(sizes) <= RANKS and self.divides(*sizes)]
        rng.shuffle(axes)
        layouts = next(filter(None, (list(self.layouts(*sizes)) for sizes in axes)))
        parallelism, micro = rng.choice(layouts)
        sizes = [parallelism.get(axis, 1) for axis in ("tensor", "pipeline", "context")]
        devices = math.prod(sizes) * parallelism.pop("data")
        if zero := rng.choice((None, None, "NONE", "OPTIMIZER", "FULL")):
            parallelism["zero"] = zero
        if parallelism["context"] > 1 and rng.random() < 0.5:
            parallelism["context_exchange"] = "ALL_GATHER"
        more = {"parallelism": parallelism}
        if rng.random() < 0.3:
            # A stage has at least the mean of layers, rounded up.
            most = -(-self.model["layers"] // parallelism["pipeline"])
            more["recompute"] = {"blocks": rng.randint(0, most),
                                 "norms_and_activations": rng.random() < 0.5}
        return self.job(micro, devices, more)

    def divides(self, tensor, context, pipeline, data):
        """Whether model and batch can be divided so."""
        sizes = [self.model[name] for name in DIVIDED if name in self.model]
        heads = self.model.get("kv_heads", self.model["heads"])
        least = 2 * context * (TAPS if "hybrid_pattern" in self.model and context > 1 else 1)
        return (all(size % tensor == 0 for size in sizes)
                and (heads % tensor == 0 or tensor % heads == 0)
                and (context == 1 or (self.sequence % (2 * context) == 0 and self.sequence >= least))
                and pipeline <= self.model["layers"] + 2 and self.samples % data == 0)

    def layouts(self, tensor, context, pipeline, data):
        """Each `parallelism` with its micro-batch."""
        for micro in range(1, self.samples // data + 1):
            rows = micro * self.sequence // context
            if self.samples % (micro * data) or rows % tensor:
                continue
            if self.balanced and micro * data != self.at_once:
                continue
            axes = {"tensor": tensor, "context": context, "data": data}
            for stages in self.pipelines(pipeline, self.samples // (micro * data)):
                for experts in self.experts(axes):
                    yield axes | stages | experts, micro

    def pipelines(self, stages, micro_batches):
        for schedule, (chunks_of, rounds) in SCHEDULES.items():
            for chunks in chunks_of:
                few = stages * chunks <= self.model["layers"] + 2
                if few and (chunks == 1 or stages > 1) and not (rounds and micro_batches % stages):
                    yield {"pipeline": stages, "virtual_pipeline": chunks, "schedule": schedule}

    def experts(self, axes):
        if "moe.experts" not in self.model:
            yield {}
            return
        splits = {"EXPERT": 1, "EXPERT_TENSOR": axes["tensor"],
                  "EXPERT_TENSOR_CONTEXT": axes["tensor"] * axes["context"]}
        for expert in range(1, axes["data"] + 1):
            for split, others in splits.items():
                if axes["data"] % expert == 0 and self.model["moe.experts"] % (expert * others) == 0:
                    yield {"expert": expert, "expert_split": split}
