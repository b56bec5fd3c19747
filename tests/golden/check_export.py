"""Trains tiny models, exports them, and lets `transformers` load the export: without a warning, and with the validation
loss that the job reported (1e-5, in f32). For people: no test runs it, as it needs the packages below.

pip install "transformers==5.24.0" "torch==2.15.0" pyyaml
check_export.py DIRECTORY_OF_PROGRAMS
"""
import json
import logging
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
import yaml

HERE = pathlib.Path(__file__).parent / "training"
SIZES = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 8, "vocab": 256, "max_seq": 64}
MLP = {"ffn": 48}
EXPERTS = {"moe": {"experts": 6, "top_k": 2, "expert_ffn": 20, "aux_loss": 0.05}}
# Of the families without a job in training/. None: the family lacks the size.
ARCHITECTURES = {
    "gpt3": MLP | {"kv_heads": None},
    "qwen2": MLP,
    "qwen3": MLP | {"tied": True},
    "mixtral": EXPERTS,
    "nemotron": MLP,
    "gemma3": MLP | {"layers": 7, "window": 6, "rope_factor": 4, "query_pre_attn_scalar": 6},
    "gpt_oss": EXPERTS | {"window": 6, "swiglu_limit": 1.0, "rope_base": 100, "yarn_factor": 4, "yarn_beta_fast": 2,
                          "yarn_beta_slow": 0.25, "yarn_original_max_seq": 16},
    "deepseek_v3": MLP | {"kv_heads": None, "head_dim": None, "layers": 3, "dense_layers": 1, "q_lora_rank": 24, "kv_lora_rank": 16,
                          "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "yarn_factor": 4,
                          "yarn_original_max_seq": 16, "moe": EXPERTS["moe"] | {"shared_experts": 1}},
    "nemotron_h": MLP | {"layers": None, "hybrid_pattern": "MEM*E-M", "mamba_heads": 8, "mamba_head_dim": 6, "mamba_groups": 2,
                         "mamba_state": 10, "mamba_min_step": 0.01, "moe_latent": 12,
                         "moe": EXPERTS["moe"] | {"shared_experts": 1, "groups": 3, "topk_groups": 2}},
}


class Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


def spec_of(name):
    own = ARCHITECTURES.get(name)
    spec = yaml.safe_load((HERE / ("llama.yaml" if own else f"{name}.yaml")).read_text())
    if own:
        fields = {"family": name} | SIZES | own
        spec["model"] = {"architecture": {key: value for key, value in fields.items() if value is not None}}
    if name == "llama":  # `transformers` warns where a model is not longer than before its scaling.
        spec["model"]["overrides"]["rope_scaling"] = {"original_max_seq": 16}
    spec |= {"precision": "F32", "devices": 1, "checkpoint": {"directory": "run"}}
    spec["data"]["text"]["path"] = str(HERE / "corpus.txt")
    return spec


def validation_loss(model, spec):
    """As train/data/text.h: the samples from the beginning of the held-out end of the file, in order."""
    text, length = (HERE / "corpus.txt").read_bytes(), spec["batch"]["sequence"]
    held_out = text[len(text) - int(spec["data"]["text"]["validation_fraction"] * len(text)):]
    samples = (len(held_out) - 1) // length
    losses = []
    for i in range(spec["validation"]["batches"] * spec["batch"]["global"]):
        begin = i % samples * length
        tokens = torch.tensor(list(held_out[begin:begin + length + 1]))
        with torch.no_grad():
            logits = model(tokens[None, :-1]).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits.double(), tokens[1:]).item())
    return sum(losses) / len(losses)


def check(name, programs, scratch):
    spec = spec_of(name)
    (scratch / "job.yaml").write_text(json.dumps(spec))
    subprocess.run([programs / "trainyard-trainer", "job.yaml"], cwd=scratch, capture_output=True, check=True)
    steps = (scratch / "run" / "epoch-1" / "steps.jsonl").read_text().splitlines()
    reported = json.loads(steps[-1][steps[-1].index("{"):])["validation_loss"]
    subprocess.run([programs / "trainyard", "export", "run", "--to", "exported", "-q"], cwd=scratch, capture_output=True,
                   check=True)
    said = Warnings()
    logging.getLogger("transformers").addHandler(said)
    model = transformers.AutoModelForCausalLM.from_pretrained(scratch / "exported").eval()
    logging.getLogger("transformers").removeHandler(said)
    found = validation_loss(model, spec)
    good = not said.said and abs(found - reported) <= 1e-5 * reported
    print(f"{name}: reported {reported:.12g}, {type(model).__name__} {found:.12g}, warnings {said.said}: {'good' if good else 'BAD'}")
    return good


programs = pathlib.Path(sys.argv[1]).resolve()
results = []
for case in ("llama", "qwen3_moe", *ARCHITECTURES):
    with tempfile.TemporaryDirectory() as scratch:
        results.append(check(case, programs, pathlib.Path(scratch)))
sys.exit(not all(results))
