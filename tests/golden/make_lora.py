"""Writes lora/CASE/ beside itself: low-rank adapters of PEFT on the models of hf/, trained by `transformers` in f64.

  lora/CASE/adapter_config.json, adapter_model.safetensors   the adapter after the last step, as save_pretrained writes it
  lora/CASE/golden.safetensors                               tokens, loss and gradient norm of each step, logits at the end;
                                                             of some, the second step's gradients

tests/train/hf/golden_lora_test.cc runs whatever is there.

pip install "peft==0.21.2" "transformers==5.24.0" "torch==2.15.0" "safetensors==0.8.0"   # and "bitsandbytes==0.50.2" for ..._nf4...
make_lora.py [CASE...]
"""
import math
import pathlib
import shutil
import sys

import golden
import safetensors.torch  # Before torch's types are replaced.
import torch

HERE = pathlib.Path(__file__).parent
# The bases of some cases, in NF4 (make_nf4.py): what bitsandbytes makes of the weights in f32, by name.
NF4_BASE, NF4_MOE = "../nf4/base", "../nf4/base_moe"
NF4_CASES = {"llama_nf4": NF4_BASE, "llama_nf4_dora": NF4_BASE, "qwen3_moe_nf4": NF4_MOE}
nf4_weights = {}
for nf4_case in set(NF4_CASES) & set(sys.argv[1:] or NF4_CASES):
    import make_nf4
    nf4_weights[NF4_CASES[nf4_case]] = make_nf4.dequantized(HERE / "hf" / NF4_CASES[nf4_case])

# What that code takes in f32 (norms, softmax, rotary tables, the routers' scores) is taken in f64 here.
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)

import peft  # noqa: E402
import transformers  # noqa: E402

SEED = 11  # Of the job whose first values the adapters have.
SAMPLES, SEQUENCE, STEPS, VOCABULARY = 4, 9, 20, 13
# As in make_hf.py.
RATE, BETAS, EPSILON, DECAY, CLIP = 1e-2, (0.9, 0.95), 1e-3, 0.1, 0.05

EXPERTS = ["experts.gate_up_proj", "experts.down_proj"]
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
NEMOTRON_H = ["in_proj", *ATTENTION]
# Name: the directory of hf/, and the adapter.
CASES = {
    "llama": ("llama", {"r": 3, "lora_alpha": 6, "target_modules": "all-linear"}),
    "llama_of_queries": ("llama_tied", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"],
                                        "use_rslora": True}),
    "gpt3": ("gpt3", {"r": 2, "target_modules": "all-linear", "modules_to_save": ["ln_f", "lm_head"]}),
    # PEFT's all-linear takes routers and experts, too.
    "deepseek_v3": ("deepseek_v3", {"r": 2, "lora_alpha": 3,
                                    "target_modules": r".*self_attn\.(\w+_proj|kv_a_proj_with_mqa)"}),
    "llama_dropout": ("llama", {"r": 3, "target_modules": "all-linear", "lora_dropout": 0.2}),
    "llama_dora": ("llama", {"r": 3, "lora_alpha": 6, "target_modules": "all-linear", "use_dora": True}),
    "llama_dora_dropout": ("llama", {"r": 3, "target_modules": "all-linear", "use_dora": True, "lora_dropout": 0.2}),
    "gpt3_dora": ("gpt3", {"r": 2, "target_modules": "all-linear", "use_dora": True, "use_rslora": True}),
    "deepseek_v3_dora": ("deepseek_v3", {"r": 2, "lora_alpha": 3, "use_dora": True,
                                         "target_modules": r".*self_attn\.(\w+_proj|kv_a_proj_with_mqa)"}),
    # Experts. Two adapters of a module are nested, one alone is not.
    "mixtral_experts": ("mixtral", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "v_proj"], "target_parameters": EXPERTS}),
    "qwen3_moe_experts": ("qwen3_moe", {"r": 3, "target_modules": [], "target_parameters": EXPERTS[:1], "use_rslora": True}),
    "gpt_oss_experts": ("gpt_oss", {"r": 2, "lora_alpha": 4, "target_modules": [], "target_parameters": EXPERTS}),
    "deepseek_v3_experts": ("deepseek_v3", {"r": 2, "lora_alpha": 3, "target_modules": ["q_a_proj", "o_proj"],
                                            "target_parameters": EXPERTS[1:]}),
    # The other families. PEFT refuses Mamba's out_proj, which all-linear has.
    "qwen2": ("qwen2", {"r": 2, "lora_alpha": 4, "target_modules": "all-linear"}),
    "qwen3": ("qwen3", {"r": 3, "target_modules": "all-linear", "use_rslora": True}),
    "nemotron": ("nemotron", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear"}),
    "gemma3": ("gemma3_tied", {"r": 2, "lora_alpha": 4, "target_modules": "all-linear"}),
    "nemotron_h": ("nemotron_h", {"r": 2, "lora_alpha": 4, "target_modules": NEMOTRON_H}),
    "nemotron_h_experts": ("nemotron_h", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj"],
                                          "target_parameters": ["experts.up_proj", EXPERTS[1]]}),
    "qwen2_dora": ("qwen2", {"r": 3, "target_modules": "all-linear", "use_dora": True}),
    "qwen3_dora": ("qwen3", {"r": 2, "lora_alpha": 4, "target_modules": "all-linear", "use_dora": True}),
    "nemotron_dora": ("nemotron", {"r": 2, "target_modules": "all-linear", "use_dora": True}),
    "gemma3_dora": ("gemma3_tied", {"r": 2, "target_modules": "all-linear", "use_dora": True, "use_rslora": True}),
    "nemotron_h_dora": ("nemotron_h", {"r": 2, "lora_alpha": 3, "target_modules": NEMOTRON_H, "use_dora": True}),
    "mixtral_dora": ("mixtral", {"r": 2, "lora_alpha": 3, "target_modules": ATTENTION, "use_dora": True}),
    "qwen3_moe_dora": ("qwen3_moe", {"r": 2, "target_modules": ATTENTION[:3], "use_dora": True}),
    "gpt_oss_dora": ("gpt_oss", {"r": 2, "lora_alpha": 4, "target_modules": ATTENTION, "use_dora": True}),
    "llama_nf4": (NF4_BASE, {"r": 3, "lora_alpha": 6, "target_modules": "all-linear"}),
    "llama_nf4_dora": (NF4_BASE, {"r": 2, "target_modules": "all-linear", "use_dora": True}),
    "qwen3_moe_nf4": (NF4_MOE, {"r": 2, "lora_alpha": 3, "target_modules": ATTENTION, "target_parameters": EXPERTS}),
}
# Of these, the second step's clipped gradients are saved, too. In the first step, those of lora_A are zero.
GRADIENTS = {"qwen3", "gemma3_dora", "nemotron_h_dora"}
# What names of parameters hold on the disk, and in memory.
ON_DISK = {"mixtral": (".block_sparse_moe.", ".mlp."), "nemotron_h": ("backbone.layers.", "model.layers.")}
# Adapters of one product drop the same elements, as the first of these.
FIRST_OF_PRODUCT = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}


def first_values(name, shape):
    """What a job's seed gives the narrow matrix: uniform within 1 / sqrt(inputs), as PEFT's own values."""
    stream, limit = golden.hash_name(name), 1 / math.sqrt(shape[1])
    values = [limit * (2 * golden.uniform(SEED, stream, i) - 1) for i in range(math.prod(shape))]
    return torch.tensor(values).reshape(shape)


def our_name(base, name):
    """What checkpoints call PEFT's parameter or module of an adapter on the model `base`."""
    name = name.removeprefix("base_model.model.").replace(".default", "").replace("vector.weight", "offset")
    return name.replace(*reversed(ON_DISK[base])) if base in ON_DISK else name


def first_values_of_experts(wrapper, name, rank):
    """The same for all experts of a layer: PEFT has their narrow matrices one after another."""
    name = name.replace(".base_layer", "")
    return torch.cat([first_values(f"{name}.{expert}.{wrapper.parameter_name}.lora_A.weight", (rank, wrapper.in_features))
                      for expert in range(wrapper.num_experts)])


def samples_of(epoch):
    """The samples of a job's step, an epoch, in their order: that of train/data/permutation.h, for four of them."""
    assert SAMPLES == 4
    key = golden.random_bits(SEED, golden.hash_name("data/epoch"), epoch)

    def place(x):
        low, high = x % 2, x // 2
        for turn in range(0, 8, 2):
            high ^= golden.random_bits(key, turn, low) % 2
            low ^= golden.random_bits(key, turn + 1, high) % 2
        return 2 * high + low

    return [place(x) for x in range(SAMPLES)]


class Dropout(torch.nn.Module):
    """Drops what a job drops (kernels/elementwise/dropout.h): a function of the seed, the step and the place."""
    step = 0

    def __init__(self, name, probability):
        super().__init__()
        layer, last = int(name.split(".layers.")[1].split(".")[0]), name.rsplit(".", 1)[-1]
        what = name.removesuffix(last) + FIRST_OF_PRODUCT.get(last, last) + ".lora_A.weight"
        self.stream = golden.random_bits(golden.hash_name("dropout"), golden.hash_name(what), layer + 1)
        self.probability = probability

    def forward(self, x):
        if not self.training:
            return x
        key, threshold = golden.random_bits(SEED, self.stream, self.step), int(self.probability * 2.0**64)
        keeps = [golden.mix(key ^ element) >= threshold for element in range(x.numel())]
        return x * torch.tensor(keeps).reshape(x.shape) / (1 - self.probability)


def tensor_named(model, name):
    """The tensor that has this name on the disk: a parameter, or a matrix of an expert, which memory has among all experts'."""
    module, _, matrix = name.partition(".experts.")
    if not matrix:
        return model.get_parameter(name).data
    expert, matrix = matrix.removesuffix(".weight").split(".")
    if matrix == "down_proj":
        return model.get_parameter(f"{module}.experts.down_proj").data[int(expert)]
    gate, up = model.get_parameter(f"{module}.experts.gate_up_proj").data[int(expert)].chunk(2)
    return gate if matrix == "gate_proj" else up


def write(name, base, options):
    path = HERE / "lora" / name
    shutil.rmtree(path, ignore_errors=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "hf" / base, attn_implementation="eager",
                                                              dtype=torch.float64).eval()
    for parameter_name, value in nf4_weights.get(base, {}).items():
        tensor_named(model, parameter_name).copy_(value)
    assert model.dtype == torch.float64
    model.config._experts_implementation = "eager"
    model = peft.get_peft_model(model, peft.LoraConfig(**options, task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for parameter_name, parameter in trained.items():
            if "lora_A" not in parameter_name:  # What else there is keeps its first values.
                assert "lora_B" not in parameter_name or (parameter == 0).all()
                continue
            limit = 1 / math.sqrt(parameter.shape[1])
            assert 0.8 * limit < parameter.abs().max() <= limit, f"{parameter_name}: PEFT draws other values"
            wrapper_name = parameter_name.removesuffix(".lora_A.default.weight")
            wrapper = model.get_submodule(wrapper_name)
            if isinstance(wrapper, peft.tuners.lora.layer.ParamWrapper):
                parameter.copy_(first_values_of_experts(wrapper, our_name(base, wrapper_name), options["r"]))
                continue
            parameter.copy_(first_values(our_name(base, parameter_name), tuple(parameter.shape)))
    if "lora_dropout" in options:
        for module_name, module in model.named_modules():
            if isinstance(module, peft.tuners.lora.Linear):
                module_name = module_name.removeprefix("base_model.model.")
                module.lora_dropout["default"] = Dropout(module_name, options["lora_dropout"])
    tokens = torch.randint(0, VOCABULARY, (SAMPLES * SEQUENCE + 1,), generator=torch.Generator().manual_seed(SEED))
    groups = [{"params": [p for p in trained.values() if (p.dim() > 1) == decays], "weight_decay": DECAY * decays}
              for decays in (False, True)]
    update = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPSILON, foreach=False)
    losses, norms, gradients = [], [], {}
    inputs, targets = (t.reshape(SAMPLES, SEQUENCE) for t in (tokens[:-1], tokens[1:]))

    def logits_now(samples=range(SAMPLES)):
        logits = model(inputs[list(samples)]).logits
        assert logits.dtype == torch.float64
        return logits

    for Dropout.step in range(1, STEPS + 1):
        model.train()
        update.zero_grad()
        # What is dropped depends on the order. Without dropout, another order would change the last bits alone.
        samples = samples_of(Dropout.step - 1) if "lora_dropout" in options else list(range(SAMPLES))
        loss = torch.nn.functional.cross_entropy(logits_now(samples).flatten(0, 1), targets[samples].flatten())
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in trained.values()))
        assert norm > CLIP, f"{name}: a step is not clipped"
        for parameter in trained.values():
            parameter.grad *= CLIP / (norm + 1e-6)  # As torch.nn.utils.clip_grad_norm_, which takes the norm in f32.
        if Dropout.step == 2 and name in GRADIENTS:
            gradients = {f"gradient/{our_name(base, n)}": p.grad.clone() for n, p in trained.items()}
        update.step()
        losses.append(loss.detach())
        norms.append(norm)
    model.eval()
    model.peft_config["default"].base_model_name_or_path = f"hf/{base}"
    model.save_pretrained(path)
    (path / "README.md").unlink(missing_ok=True)
    with torch.no_grad():
        safetensors.torch.save_file({"tokens": tokens, "losses": torch.stack(losses), "grad_norms": torch.stack(norms),
                                     "logits": logits_now().clone(), **gradients}, path / "golden.safetensors")
    print(name, sum(p.numel() for p in trained.values()), "parameters, loss", losses[0].item(), "to", losses[-1].item())


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        write(case, *CASES[case])
