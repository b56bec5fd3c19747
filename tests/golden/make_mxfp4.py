"""Writes mxfp4/packed and mxfp4/plain beside itself: a tiny gpt-oss with experts in MXFP4, and the same with the experts
that `transformers` makes of them.

pip install "transformers==5.24.0" "torch==2.15.0" "safetensors==0.8.0"
"""
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = pathlib.Path(__file__).parent / "mxfp4"
EXPERTS, WIDTH = 3, 32
torch.manual_seed(21)
config = GptOssConfig(vocab_size=8, hidden_size=64, intermediate_size=WIDTH, num_hidden_layers=1, num_attention_heads=2,
                      num_key_value_heads=1, head_dim=2, max_position_embeddings=16, num_local_experts=EXPERTS,
                      num_experts_per_tok=2)
GptOssForCausalLM(config).to(torch.bfloat16).save_pretrained(HERE / "plain")
(HERE / "plain" / "generation_config.json").unlink()
plain = load_file(HERE / "plain" / "model.safetensors")
packed = dict(plain)
for name, rows, columns in [("gate_up_proj", 2 * WIDTH, 64), ("down_proj", 64, WIDTH)]:
    blocks = torch.randint(0, 256, (EXPERTS, rows, columns // 32, 16), dtype=torch.uint8)
    scales = torch.randint(110, 135, (EXPERTS, rows, columns // 32), dtype=torch.uint8)
    scales[0, 0], scales[0, 1], scales[0, 2], scales[0, 3] = 0, 1, 254, 255  # Subnormal numbers, and infinity.
    blocks[0, 3] = 0x7A  # 0 times infinity would be NaN, of which there are many.
    full = f"model.layers.0.mlp.experts.{name}"
    plain[full] = convert_moe_packed_tensors(blocks, scales).contiguous()
    del packed[full]
    packed |= {full + "_blocks": blocks, full + "_scales": scales}
save_file(plain, HERE / "plain" / "model.safetensors", metadata={"format": "pt"})
(HERE / "packed").mkdir(exist_ok=True)
save_file(packed, HERE / "packed" / "model.safetensors", metadata={"format": "pt"})
fields = json.loads((HERE / "plain" / "config.json").read_text())
fields["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
(HERE / "packed" / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
