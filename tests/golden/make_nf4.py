"""Writes nf4/ beside itself: what bitsandbytes makes of numbers in NF4 with double quantisation.

  nf4/blocks.safetensors   for each case its numbers, codes, scales, groups (and, last, the scales' mean), and the numbers
                           that come back, in f32 and bf16
  nf4/base/                a tiny Llama of `transformers` in bf16, which make_lora.py fine-tunes (llama_nf4...)
  nf4/base_moe/            a tiny Qwen3-MoE, likewise (qwen3_moe_nf4)

Of experts, each matrix is a tensor of its own, as those of other layers are: as it lies on the disk. bitsandbytes leaves the
experts of `transformers` 5, which are one parameter, alone.

Scales are rounded by the code of bitsandbytes that all devices but CPUs follow, to the nearest of the map. Its library for
CPUs looks scales up in a table, which rounds one in 700 the other way. torch adds up a mean in f32, in an order that depends
on the machine: here every tensor is one whose mean is that of its sum in f64.

pip install "bitsandbytes==0.50.2" "transformers==5.24.0" "torch==2.15.0" "safetensors==0.8.0"
"""
import json
import pathlib
import shutil

import bitsandbytes.functional
import numpy
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).parent
BLOCK, GROUP = 64, 256
MEANS_DIFFER = "the mean depends on the order of its sum"


def quantized(numbers):
    """The parts of a tensor, and its numbers in f32 and bf16."""
    functional = bitsandbytes.functional
    codes, state = functional.quantize_4bit(numbers, blocksize=BLOCK, quant_type="nf4")
    mean = state.absmax.mean()
    if mean.item() != numpy.float32(state.absmax.double().mean().item()):
        raise ValueError(MEANS_DIFFER)
    of_other_devices = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
    scales, groups = torch.ops.bitsandbytes.quantize_blockwise.default.redispatch(
        of_other_devices, state.absmax - mean, functional.create_dynamic_map(), GROUP)
    whole = functional.QuantState(absmax=scales, shape=numbers.shape, dtype=numbers.dtype, blocksize=BLOCK, code=state.code,
                                  quant_type="nf4", offset=mean,
                                  state2=functional.QuantState(absmax=groups, code=functional.create_dynamic_map(),
                                                               blocksize=GROUP, dtype=torch.float32))
    results = {}
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        whole.dtype = dtype
        results[name] = functional.dequantize_4bit(codes, whole)
    return {"codes": codes.flatten(), "scales": scales, "groups": torch.cat([groups, mean.reshape(1)]), **results}


def dequantized(path):
    """The weights of a model's linear layers but the head, and of experts, as they come back, by the names on the disk."""
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    return {name: quantized(value)["f32"] for name, value in tensors.items() if "_proj." in name}


def normal(blocks, seed):
    return torch.randn(blocks * BLOCK, generator=torch.Generator().manual_seed(seed))


def adversarial(attempt):
    """Blocks of every kind, of scales that are not far from each other; the last one's differs with each attempt."""
    values = bitsandbytes.functional.get_4bit_type("nf4", device="cpu")
    middles = (values[:-1] + values[1:]) / 2
    up, down = torch.tensor(2.0), torch.tensor(-2.0)
    blocks = [torch.zeros(BLOCK), torch.full((BLOCK,), -0.75), torch.full((BLOCK,), 1e-40), torch.full((BLOCK,), -3e-39)]
    for numbers in (values, middles, torch.nextafter(middles, up), torch.nextafter(middles, down)):
        for greatest in (1.0, -1.0, 0.7):  # Times 0.7, a middle is rounded to either side.
            block = torch.zeros(BLOCK)
            block[5] = greatest
            block[8:8 + len(numbers)] = numbers * abs(greatest)
            blocks.append(block)
    return torch.cat([*blocks, torch.full((BLOCK,), 0.5 + attempt / 100)])


def huge(attempt):
    numbers = normal(3, attempt)
    numbers[70] = -3e38
    return numbers


CASES = {"normal": lambda attempt: normal(GROUP + 3, attempt), "adversarial": adversarial, "huge": huge,
         "two_blocks": lambda attempt: normal(2, attempt)}


def write_blocks():
    tensors = {}
    for name, make in CASES.items():
        for attempt in range(100):
            try:
                numbers = make(attempt)
                parts = quantized(numbers)
                break
            except ValueError:
                assert attempt < 99, f"{name}: {MEANS_DIFFER}"
        for part, value in {"numbers": numbers, **parts}.items():
            tensors[f"{name}.{part}"] = value
    (HERE / "nf4").mkdir(exist_ok=True)
    safetensors.torch.save_file(tensors, HERE / "nf4" / "blocks.safetensors")


def tensors_of(name, parameter):
    """The tensors of a parameter that are quantised."""
    if parameter.dim() == 2:
        return [parameter] if "_proj." in name else []
    return [matrix for expert in parameter for matrix in (expert.chunk(2) if "gate_up" in name else [expert])]


SIZES = {"vocab_size": 13, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 16, "rms_norm_eps": 1e-5,
         "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
         "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}
# A matrix of an expert has 128 blocks, which are one group.
OF_EXPERTS = {"moe_intermediate_size": 128, "num_experts": 3, "num_experts_per_tok": 2, "norm_topk_prob": True,
              "router_aux_loss_coef": 0.0, "pad_token_id": None, "use_sliding_window": False}


def write_base(family="Llama", directory="base", **more):
    import transformers
    path = HERE / "nf4" / directory
    shutil.rmtree(path, ignore_errors=True)
    torch.manual_seed(21)
    config = getattr(transformers, f"{family}Config")(**SIZES, **more)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                continue
            while True:  # Larger than the initial weights, so that every layer matters.
                parameter.copy_((torch.randn(parameter.shape) * 0.15).to(torch.bfloat16))
                try:
                    for tensor in tensors_of(name, parameter.data):
                        quantized(tensor.contiguous())
                    break
                except ValueError:
                    pass
    model.to(torch.bfloat16).save_pretrained(path)
    (path / "generation_config.json").unlink()
    print({k: v for k, v in json.loads((path / "config.json").read_text()).items() if "type" in k})


if __name__ == "__main__":
    write_blocks()
    write_base()
    write_base("Qwen3Moe", "base_moe", **OF_EXPERTS)
