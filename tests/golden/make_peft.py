"""Writes peft/CASE/ beside itself: adapters that PEFT wrote, for models of hf/, and what PEFT and `transformers` compute with them in f64.

  peft/CASE/adapter_config.json, adapter_model.safetensors   what save_pretrained writes
  peft/CASE/golden.safetensors                               tokens, logits; loss and gradient norm of each of the next steps
  peft/CASE/after.safetensors                                the adapter after these steps, by the names of the first

tests/train/hf/golden_peft_test.cc runs whatever is there. Everything is computed with what PeftModel.from_pretrained makes of
the directory, so the adapter's values have gone through PEFT's file.

pip install "peft==0.21.2" "transformers==5.24.0" "torch==2.15.0" "safetensors==0.8.0"
make_peft.py [CASE...]
"""
import pathlib
import shutil
import sys

import safetensors.torch  # Before torch's types are replaced.
import torch

# What that code takes in f32 (norms, softmax, rotary tables, the routers' scores) is taken in f64 here.
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)

import peft  # noqa: E402
import transformers  # noqa: E402

HERE = pathlib.Path(__file__).parent
SEED = 17
SAMPLES, SEQUENCE, STEPS, VOCABULARY = 4, 9, 5, 13
# As in make_hf.py.
RATE, BETAS, EPSILON, DECAY, CLIP = 1e-2, (0.9, 0.95), 1e-3, 0.1, 0.05

EXPERTS = ["experts.gate_up_proj", "experts.down_proj"]
# Name: the directory of hf/, and the adapter.
CASES = {
    "llama": ("llama", {"r": 3, "lora_alpha": 6, "target_modules": "all-linear", "lora_dropout": 0.1}),
    "llama_dora": ("llama", {"r": 2, "target_modules": ["q_proj", "down_proj"], "use_dora": True, "modules_to_save": ["lm_head"]}),
    # One layer of two.
    "llama_layer": ("llama_tied", {"r": 2, "target_modules": ["v_proj", "up_proj"], "layers_to_transform": [1],
                                   "exclude_modules": ["up_proj"]}),
    "qwen2": ("qwen2", {"r": 4, "lora_alpha": 5, "use_rslora": True, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
                        "modules_to_save": ["embed_tokens", "lm_head", "model.norm"], "init_lora_weights": "gaussian"}),
    "gpt3_dora": ("gpt3", {"r": 2, "lora_alpha": 3, "target_modules": ["c_attn", "c_proj"], "use_dora": True,
                           "fan_in_fan_out": True, "modules_to_save": ["ln_f", "c_fc"]}),
    "mixtral_experts": ("mixtral", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj"], "target_parameters": EXPERTS,
                                    "modules_to_save": ["lm_head", "mlp.gate"]}),
    "qwen3_moe_experts": ("qwen3_moe", {"r": 3, "target_modules": [], "target_parameters": EXPERTS[:1], "use_rslora": True}),
    "gpt_oss_experts": ("gpt_oss", {"r": 2, "lora_alpha": 4, "target_modules": ["k_proj"], "target_parameters": EXPERTS}),
    "deepseek_v3_experts": ("deepseek_v3", {"r": 2, "lora_alpha": 3, "target_modules": ["q_a_proj", "o_proj"],
                                            "target_parameters": EXPERTS[1:]}),
    # Layers of three ranks and scales. An import makes one rank and one scale of them.
    "llama_patterns": ("llama", {"r": 2, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj", "down_proj"],
                                 "rank_pattern": {"v_proj": 4, "layers.1.self_attn.q_proj": 1},
                                 "alpha_pattern": {"v_proj": 3, "^model.layers.0.mlp.down_proj": 12}}),
    # PEFT writes patterns of its own, since w1 and w3 are one parameter in `transformers` 5.
    "mixtral_patterns": ("mixtral", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "w1", "w2", "w3"]}),
}


def loaded(base):
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "hf" / base, attn_implementation="eager", dtype=torch.float64)
    assert model.dtype == torch.float64
    model.config._experts_implementation = "eager"
    return model.eval()


def write_adapter(path, base, options):
    """An adapter of which every number matters, as PEFT writes it."""
    model = peft.get_peft_model(loaded(base), peft.LoraConfig(**options, task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in (p for p in model.parameters() if p.requires_grad):
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    model.peft_config["default"].base_model_name_or_path = f"hf/{base}"
    model.save_pretrained(path)
    (path / "README.md").unlink(missing_ok=True)


def write(name, base, options):
    path = HERE / "peft" / name
    shutil.rmtree(path, ignore_errors=True)
    write_adapter(path, base, options)
    model = peft.PeftModel.from_pretrained(loaded(base), path, is_trainable=True, autocast_adapter_dtype=False)
    stored = safetensors.torch.load_file(path / "adapter_model.safetensors")
    kept = peft.get_peft_model_state_dict(model)
    assert stored.keys() == kept.keys(), stored.keys() ^ kept.keys()
    assert all(torch.equal(stored[key], kept[key]) for key in stored), f"{name}: PEFT loads something else than it wrote"
    for module in model.modules():
        if "default" in getattr(module, "lora_dropout", {}):
            module.lora_dropout["default"] = torch.nn.Identity()
    tokens = torch.randint(0, VOCABULARY, (SAMPLES * SEQUENCE + 1,), generator=torch.Generator().manual_seed(SEED))
    inputs, targets = (t.reshape(SAMPLES, SEQUENCE) for t in (tokens[:-1], tokens[1:]))
    model.eval()
    with torch.no_grad():
        logits = model(inputs).logits.clone()
        of_base = loaded(base)(inputs).logits
    assert logits.dtype == torch.float64 and (logits - of_base).abs().max() > 1e-2, f"{name}: the adapter changes nothing"
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if (p.dim() > 1) == decays], "weight_decay": DECAY * decays} for decays in (False, True)]
    update = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPSILON, foreach=False)
    model.train()
    losses, norms = [], []
    for _ in range(STEPS):
        update.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), targets.flatten())
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in trained))
        assert norm > CLIP, f"{name}: a step is not clipped"
        for parameter in trained:
            parameter.grad *= CLIP / (norm + 1e-6)  # As torch.nn.utils.clip_grad_norm_, which takes the norm in f32.
        update.step()
        losses.append(loss.detach())
        norms.append(norm)
    safetensors.torch.save_file({"tokens": tokens, "logits": logits, "losses": torch.stack(losses), "grad_norms": torch.stack(norms)},
                                path / "golden.safetensors")
    after = {key: value.contiguous() for key, value in peft.get_peft_model_state_dict(model).items()}
    safetensors.torch.save_file(after, path / "after.safetensors")
    print(name, sum(p.numel() for p in trained), "parameters, loss", losses[0].item(), "to", losses[-1].item())


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        write(case, *CASES[case])
