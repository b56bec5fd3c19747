"""Fine-tunes a tiny model of every family by the commands of docs/fine_tuning.md, as tests/e2e/tuned_families_test.cc does, and
lets PEFT load the exported adapter beside the base, and `transformers` the merged model. Both must find each answer as likely as
`trainyard evaluate` does of the run (1e-5, since both take some numbers in f32): of a run in F64, and of one in BF16, in which
the recipe trains. The base of the latter is rounded for PEFT as the run has it. For people: no test runs it, as it needs the
packages below.

pip install "peft==0.21.2" "transformers==5.24.0" "torch==2.15.0"
check_commands.py DIRECTORY_OF_PROGRAMS [FAMILY...]
"""
import json
import os
import pathlib
import shutil
import sys

import peft
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
os.environ["TRAINYARD_BIN"] = str(pathlib.Path(sys.argv[1]).resolve())
sys.path.append(str(HERE.parent / "clients"))

from local_service import LocalService  # noqa: E402

# Each with the layers that PEFT has names for, where these are not all of `all-linear`.
FAMILIES = {"deepseek_v3": "['*.self_attn.*']", "gemma3": "", "gpt3": "", "gpt_oss": "", "llama": "", "mixtral": "", "nemotron": "",
            "nemotron_h": "['*.in_proj', '*.q_proj', '*.v_proj']", "qwen2": "", "qwen3": "", "qwen3_moe": ""}
TOKENS = ["user", "assistant", "<|im_start|>", "<|im_end|>", "\n", *"abcdefgh"]
PAIRS = [("abcdefgh"[i], "abcdefgh"[(3 * i + 1) % 8]) for i in range(8)]


def tokenizer():
    vocabulary = {token: i for i, token in enumerate(TOKENS)}
    added = [{"id": i, "content": TOKENS[i], "special": i > 1, "normalized": False, "lstrip": False, "rstrip": False,
              "single_word": False} for i in range(4)]
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": "h"}}


def losses(model):
    """Of each pair's answer, which is a letter and the token that ends it."""
    result = []
    for question, answer in PAIRS:
        words = ["<|im_start|>", "user", "\n", question, "<|im_end|>", "\n", "<|im_start|>", "assistant", "\n", answer, "<|im_end|>"]
        ids = torch.tensor([TOKENS.index(word) for word in words])
        with torch.no_grad():
            logits = model(ids[None]).logits[0, -3:-1]
        result.append(torch.nn.functional.cross_entropy(logits, ids[-2:]).item())
    return result


def loaded(path, rounded=False):
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager").eval()
    model.config._experts_implementation = "eager"
    if rounded:
        for name, parameter in model.named_parameters():
            if not name.endswith((".A_log", ".D", ".dt_bias")):  # A run has these in f32.
                parameter.data = parameter.data.to(torch.bfloat16).to(torch.float64)
    return model


def check(service, family, precision):
    name = f"{family}-{precision}"
    sets = [f"model.import={family}", "data.chat.path=chats.jsonl", "data.chat.format=chatml", "steps=10", f"precision={precision}",
            "batch={global: 2, micro: 1, sequence: 16}", f"checkpoint.directory=runs/{name}"]
    sets += [f"adapter.lora.targets={FAMILIES[family]}"] if FAMILIES[family] else []
    recipe = str(HERE.parent.parent / "recipes/finetune/lora.yaml")
    service.trainyard("submit", recipe, "--watch", "--quiet", *(word for value in sets for word in ("--set", value)))
    service.trainyard("export", f"runs/{name}", "--to", f"{name}-adapter")
    service.trainyard("export", f"runs/{name}", "--to", f"{name}-merged", "--merge")
    ours = []
    for i in range(len(PAIRS)):
        ours.append(json.loads(service.trainyard("evaluate", f"runs/{name}", "--chats", f"{i}.jsonl"))["chats"]["loss"])
    rounded = precision == "BF16"
    directory = service.directory
    tuned = losses(peft.PeftModel.from_pretrained(loaded(directory / family, rounded), directory / f"{name}-adapter",
                                                  autocast_adapter_dtype=False).eval())
    merged = losses(loaded(directory / f"{name}-merged"))
    base = losses(loaded(directory / family, rounded))
    difference = {what: max(abs(a - b) for a, b in zip(ours, theirs)) for what, theirs in
                  (("PEFT", tuned), ("merged", merged), ("base", base))}
    good = max(difference["PEFT"], difference["merged"]) < 1e-5 and difference["base"] > 1e-3
    print(f"{family} {precision}: " + ", ".join(f"{what} {value:.1e}" for what, value in difference.items()),
          "" if good else "BAD", flush=True)
    return good


def main():
    service, good = LocalService(), True
    try:
        lines = [json.dumps({"prompt": question, "completion": answer}) + "\n" for question, answer in PAIRS]
        (service.directory / "chats.jsonl").write_text("".join(lines * 5))
        for i, line in enumerate(lines):
            (service.directory / f"{i}.jsonl").write_text(line)
        for family in sys.argv[2:] or FAMILIES:
            (service.directory / family).mkdir()
            for file in ("config.json", "model.safetensors"):
                shutil.copy(HERE / "hf" / family / file, service.directory / family / file)
            (service.directory / family / "tokenizer.json").write_text(json.dumps(tokenizer()))
            for precision in ("F64", "BF16"):
                good &= check(service, family, precision)
    finally:
        service.stop()
    sys.exit(not good)


if __name__ == "__main__":
    main()
