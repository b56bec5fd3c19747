"""Writes quantized/ beside itself: tiny models with quantised weights (mxfp4/, fp8/), and the same with what `transformers`
makes of these weights (mxfp4_plain/, fp8_plain/).

pip install "transformers==5.24.0" "torch==2.15.0" "safetensors==0.8.0"
"""
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = pathlib.Path(__file__).parent / "quantized"


def write(name, model, quantize, settings):
    """`quantize` takes the tensors' name and values, and returns None, or the packed tensors and what they stand for."""
    plain_path, packed_path = HERE / f"{name}_plain", HERE / name
    model.to(torch.bfloat16).save_pretrained(plain_path)
    (plain_path / "generation_config.json").unlink()
    plain = load_file(plain_path / "model.safetensors")
    packed = {}
    for tensor, value in sorted(plain.items()):
        parts = quantize(tensor, value)
        packed |= {tensor: value} if parts is None else parts[0]
        plain[tensor] = value if parts is None else parts[1].contiguous()
    packed_path.mkdir(exist_ok=True)
    for path, tensors in ((plain_path, plain), (packed_path, packed)):
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    fields = json.loads((plain_path / "config.json").read_text()) | {"quantization_config": settings}
    (packed_path / "config.json").write_text(json.dumps(fields, indent=2) + "\n")


def mxfp4(name, value):
    if not name.endswith("_proj"):
        return None
    experts, columns, rows = value.shape  # The packed tensors have the rows first.
    blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8)
    scales = torch.randint(110, 135, (experts, rows, columns // 32), dtype=torch.uint8)
    scales[0, 0], scales[0, 1], scales[0, 2], scales[0, 3] = 0, 1, 251, 252  # Subnormal numbers, and the largest ones.
    blocks[0, 3] = 0x7A  # 6 and -1.
    return {name + "_blocks": blocks, name + "_scales": scales}, convert_moe_packed_tensors(blocks, scales)


def fp8(name, value):
    if "_proj" not in name:
        return None
    number = torch.randint(0, 255, value.shape, dtype=torch.uint8)
    number[number == 0x7F] = 0x7E  # 0x7f and 0xff are NaN.
    number = number.view(torch.float8_e4m3fn)
    scales = torch.rand([-(-size // 128) for size in value.shape]) + 0.1
    if "gate" in name:
        scales = scales.to(torch.bfloat16)
    return ({name: number, name + "_scale_inv": scales},
            Fp8Dequantize(None)._dequantize_one(number, scales, output_dtype=torch.bfloat16))


torch.manual_seed(21)
write("mxfp4",
      GptOssForCausalLM(GptOssConfig(vocab_size=8, hidden_size=64, intermediate_size=32, num_hidden_layers=1,
                                     num_attention_heads=2, num_key_value_heads=1, head_dim=2, max_position_embeddings=16,
                                     num_local_experts=3, num_experts_per_tok=2)),
      mxfp4, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})
# Two blocks of the MLP's width, which are whole: that code would divide others in half.
write("fp8",
      LlamaForCausalLM(LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=256, num_hidden_layers=1,
                                   num_attention_heads=2, num_key_value_heads=1, head_dim=4, max_position_embeddings=16)),
      fp8, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})
