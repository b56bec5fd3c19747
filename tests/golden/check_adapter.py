"""Lets PEFT load exported adapters beside their base, and `transformers` the merged model: both must have the same logits
(1e-5, in f32). So must the directories of peft/, and what is exported after their import. For people: no test runs it, as it needs the packages below.

pip install "peft==0.21.2" "transformers==5.24.0" "torch==2.15.0" pyyaml
check_adapter.py DIRECTORY_OF_PROGRAMS
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
import transformers
import yaml

HERE = pathlib.Path(__file__).parent
# The base's directory in hf/, and the adapter as a spec has it.
CASES = [
    ("llama", {"rank": 3, "alpha": 6}),
    ("llama_tied", {"rank": 4, "rslora": True, "targets": ["*.q_proj", "*.v_proj", "*.down_proj"]}),
    ("gpt3", {"rank": 2, "modules_to_save": ["*.ln_f", "lm_head"]}),
    ("qwen3_moe", {"rank": 2}),
    ("qwen3_moe", {"rank": 2, "targets": ["all-linear", "*.experts.*"]}),
    ("mixtral", {"rank": 3, "targets": ["*.experts.*"], "modules_to_save": ["lm_head"]}),
    ("gpt_oss", {"rank": 2, "targets": ["all-linear", "*.experts.*"]}),
    ("gpt_oss", {"rank": 2, "rslora": True, "targets": ["*.experts.gate_up_proj"]}),
    ("deepseek_v3", {"rank": 2, "targets": ["*.self_attn.*"]}),
    ("deepseek_v3", {"rank": 2, "targets": ["*.self_attn.*", "*.experts.*"]}),
    ("gemma3", {"rank": 2, "dora": True}),
    ("nemotron_h", {"rank": 2, "targets": ["*.in_proj", "*.q_proj", "*.v_proj", "*.experts.*"]}),
]


def run(programs, directory, *words):
    return subprocess.run([programs / words[0], *words[1:]], cwd=directory, check=True, stdout=subprocess.PIPE).stdout


def check(programs, name, lora):
    base = HERE / "hf" / name
    with tempfile.TemporaryDirectory() as directory:
        imported = json.loads(run(programs, directory, "trainyard", "import", base, "--to", "base", "-o", "json"))
        spec = {"name": "tuned", "model": {"architecture": imported["model"]}, "init_from": "base", "precision": "F64",
                "adapter": {"lora": lora}, "batch": {"global": 4, "micro": 4, "sequence": 9}, "data": {"synthetic": {}}, "steps": 5,
                "optimizer": {"adamw": {"learning_rate": 0.02}}, "checkpoint": {"directory": "run"}, "devices": 1}
        (pathlib.Path(directory) / "spec.yaml").write_text(yaml.safe_dump(spec))
        run(programs, directory, "trainyard-trainer", "spec.yaml")
        run(programs, directory, "trainyard", "export", "run", "--to", "adapter")
        run(programs, directory, "trainyard", "export", "run", "--to", "merged", "--merge")
        tokens = torch.randint(0, 13, (4, 9), generator=torch.Generator().manual_seed(1))

        def load(path):
            model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
            model.config._experts_implementation = "eager"  # The others want wider experts.
            return model

        with torch.no_grad():
            of_base = load(base)(tokens).logits
            tuned = peft.PeftModel.from_pretrained(load(base), f"{directory}/adapter")(tokens).logits
            merged = load(f"{directory}/merged")(tokens).logits
        difference = (tuned - merged).abs().max().item()
        moved = (tuned - of_base).abs().max().item()
        assert difference < 1e-5 * merged.abs().max().item() + 1e-5 and moved > 1e-3, (name, difference, moved)
        print(f"{name} {lora}: PEFT and the merged model differ by {difference:.1e}, the base by {moved:.1e}")


def check_import(programs, adapter):
    base = HERE / json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]
    with tempfile.TemporaryDirectory() as directory:
        run(programs, directory, "trainyard", "import", adapter, "--base", base, "--to", "run")
        run(programs, directory, "trainyard", "export", "run", "--to", "out")
        tokens = torch.randint(0, 13, (4, 9), generator=torch.Generator().manual_seed(1))
        logits = []
        for path in (adapter, f"{directory}/out"):
            model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64).eval()
            model.config._experts_implementation = "eager"
            with torch.no_grad():
                logits.append(peft.PeftModel.from_pretrained(model, path, autocast_adapter_dtype=False).eval()(tokens).logits)
    difference = (logits[0] - logits[1]).abs().max().item()
    assert difference < 1e-5, (adapter, difference)
    print(f"{adapter.name}: what comes back differs by {difference:.1e}")


if __name__ == "__main__":
    binaries = pathlib.Path(sys.argv[1]).resolve()
    for path in sorted((HERE / "peft").iterdir()):
        check_import(binaries, path)
    for case, options in CASES:
        check(binaries, case, options)
