"""Writes hf/CASE/ beside itself: tiny models of `transformers`, with what that code computes from them in f64.

  hf/CASE/config.json, model.safetensors   the model, as save_pretrained writes it
  hf/CASE/golden.safetensors               tokens, logits of the samples, loss and gradient norm of each step
  hf/CASE/gradients/, hf/CASE/after/       the same model, with the first step's gradients and with the parameters
                                           after the last step in the place of its weights

A family needs nothing but a case in CASES; tests/train/hf/golden_test.cc runs whatever is there.

pip install "transformers==5.24.0" "torch==2.15.0" "safetensors==0.8.0"
make_hf.py [CASE...]
"""
import copy
import json
import pathlib
import shutil
import sys

import safetensors.torch  # Before torch's types are replaced.
import torch

# What that code takes in f32 (norms, softmax, rotary tables, the routers' scores) is taken in f64 here.
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)

import transformers  # noqa: E402

HERE = pathlib.Path(__file__).parent / "hf"
SEED = 21
SAMPLES, SEQUENCE, STEPS = 4, 9, 12
# Every step is clipped. A large epsilon, so that a gradient of which only rounding is left does not become a whole step.
RATE, BETAS, EPSILON, DECAY, CLIP = 1e-2, (0.9, 0.95), 1e-3, 0.1, 0.05

SIZES = {"vocab_size": 13, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 16, "rms_norm_eps": 1e-5,
         "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
# Wavelengths of some positions, of which the scaling leaves some, stretches some, and stretches others in part.
ROPE = {"rope_type": "default", "rope_theta": 100.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "beta_fast": 2.0, "beta_slow": 0.25, "truncate": False,
        "original_max_position_embeddings": 16}
DEEPSEEK = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "beta_fast": 2.0, "beta_slow": 0.25, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}
EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.0}
# Three layers, whose loads differ.
BALANCED = {"num_hidden_layers": 3, "output_router_logits": True, "router_aux_loss_coef": 0.3}
# Without a token whose row of the embedding has no gradient.
GEMMA3 = {"rope_parameters": {"sliding_attention": ROPE, "full_attention": {"rope_type": "linear", "rope_theta": 1000.0,
                                                                            "factor": 4.0}},
          "sliding_window": 3, "query_pre_attn_scalar": 6, "pad_token_id": None}
# Some steps of Mamba-2 are clamped; chunks end within a sequence.
NEMOTRON_H = {"rms_norm_eps": None, "num_hidden_layers": None, "mamba_num_heads": 6, "mamba_head_dim": 3, "n_groups": 2,
              "ssm_state_size": 5, "conv_kernel": 3, "chunk_size": 4, "time_step_min": 0.7, "n_routed_experts": 6,
              "num_experts_per_tok": 3, "moe_intermediate_size": 7, "moe_shared_expert_intermediate_size": 9,
              "routed_scaling_factor": 2.5}

GPT2 = {"num_key_value_heads": None, "head_dim": None, "rms_norm_eps": None, "intermediate_size": None, "n_inner": 20,
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}

# Name: the model's class, and what its configuration has besides SIZES.
CASES = {
    "llama": ("Llama", {"rope_parameters": LLAMA3}),
    "llama_linear": ("Llama", {"rope_parameters": LINEAR}),
    "llama_tied": ("Llama", {"rope_parameters": ROPE, "tie_word_embeddings": True}),
    # Tokens whose row of the embedding has no gradient; -1 is the last of the vocabulary.
    "llama_padding": ("Llama", {"rope_parameters": ROPE, "pad_token_id": 3}),
    "llama_tied_padding": ("Llama", {"rope_parameters": ROPE, "tie_word_embeddings": True, "pad_token_id": -1}),
    "gpt3": ("GPT2", GPT2),
    "gpt3_tied": ("GPT2", {**GPT2, "tie_word_embeddings": True}),
    "qwen3_moe": ("Qwen3Moe", {"rope_parameters": ROPE, "moe_intermediate_size": 7, "norm_topk_prob": True, **EXPERTS}),
    "qwen3_moe_balanced": ("Qwen3Moe", {"rope_parameters": ROPE, "moe_intermediate_size": 7, "norm_topk_prob": False,
                                        **EXPERTS, **BALANCED}),
    "qwen2": ("Qwen2", {"rope_parameters": ROPE}),
    "qwen2_tied": ("Qwen2", {"rope_parameters": ROPE, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"rope_parameters": ROPE}),
    "qwen3_tied": ("Qwen3", {"rope_parameters": ROPE, "tie_word_embeddings": True}),
    "mixtral": ("Mixtral", {"rope_parameters": ROPE, "intermediate_size": 7, **EXPERTS}),
    "mixtral_balanced": ("Mixtral", {"rope_parameters": ROPE, "intermediate_size": 7, **EXPERTS, **BALANCED}),
    "nemotron": ("Nemotron", {"rope_parameters": {**ROPE, "partial_rotary_factor": 0.5}, "head_dim": 8,
                              "norm_eps": 1e-5, "rms_norm_eps": None}),
    "deepseek_v3": ("DeepseekV3", {"rope_parameters": DEEPSEEK, "num_hidden_layers": 3, "first_k_dense_replace": 1,
                                   "num_key_value_heads": 6, "rms_norm_eps": 1e-5, "q_lora_rank": 7,
                                   "kv_lora_rank": 5, "qk_nope_head_dim": 3, "qk_rope_head_dim": 4, "v_head_dim": 5,
                                   "n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 7,
                                   "n_shared_experts": 2, "n_group": 3, "topk_group": 2, "num_mtp_layers": 0}),
    "deepseek_v3_whole_queries": ("DeepseekV3", {
        "rope_parameters": ROPE, "num_hidden_layers": 2, "first_k_dense_replace": 1, "num_key_value_heads": 6,
        "q_lora_rank": None, "kv_lora_rank": 5, "qk_nope_head_dim": 3, "qk_rope_head_dim": 4, "v_head_dim": 5,
        "n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 7, "n_shared_experts": 2, "n_group": 1,
        "topk_group": 1, "num_mtp_layers": 0}),
    "gemma3": ("Gemma3", {"num_hidden_layers": 7, "tie_word_embeddings": False, **GEMMA3}),
    "gemma3_padding": ("Gemma3", {"num_hidden_layers": 2, "tie_word_embeddings": False, **GEMMA3, "pad_token_id": 0}),
    "gemma3_tied": ("Gemma3", {"num_hidden_layers": 3, "sliding_window_pattern": 2, "tie_word_embeddings": True, **GEMMA3}),
    "gpt_oss": ("GptOss", {"rope_parameters": YARN, "intermediate_size": 7, "sliding_window": 3, "swiglu_limit": 1.0,
                           **EXPERTS}),
    "gpt_oss_balanced": ("GptOss", {"rope_parameters": YARN, "intermediate_size": 7, "sliding_window": 3,
                                    "swiglu_limit": 1.0, **EXPERTS, **BALANCED}),
    "nemotron_h": ("NemotronH", {**NEMOTRON_H, "hybrid_override_pattern": "ME*-M", "n_group": 3, "topk_group": 2}),
    "nemotron_h_latent": ("NemotronH", {**NEMOTRON_H, "hybrid_override_pattern": "*EME", "moe_latent_size": 5}),
}


def make(kind, fields):
    """The model, with weights that are large enough for every part of it to matter."""
    model_class = getattr(transformers, kind + ("LMHeadModel" if kind == "GPT2" else "ForCausalLM"))
    config = model_class.config_class(**{**SIZES, **fields}, attn_implementation="eager")
    config._experts_implementation = "eager"
    model = model_class(config).eval()
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = name.endswith(("norm.weight", "norm_f.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight"))
            parameter.copy_((1.0 if gain else 0.0) + (0.1 if gain else 0.3) * torch.randn(parameter.shape, generator=generator))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
    return model


def save(model, path):
    model.save_pretrained(path)
    (path / "generation_config.json").unlink(missing_ok=True)


def with_values(model, values):
    """A copy of the model with other parameters, so that save_pretrained writes them by the directory's names."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, value in zip(other.parameters(), values, strict=True):
            parameter.copy_(value)
    return other


# The families in which the code adds a loss for the load of experts.
BALANCES = ("mixtral", "qwen3_moe", "gpt_oss")


def loss_of(model, tokens):
    """The logits, the loss of the tokens, and what is differentiated."""
    samples = tokens[:-1].reshape(SAMPLES, SEQUENCE)
    out = model(samples)
    assert out.logits.dtype == torch.float64
    loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), tokens[1:])
    if not getattr(model.config, "output_router_logits", False) or model.config.model_type not in BALANCES:
        return out.logits, loss, loss
    return out.logits, loss, loss + model.config.router_aux_loss_coef * out.aux_loss


def write(name, kind, fields):
    path = HERE / name
    shutil.rmtree(path, ignore_errors=True)
    model = make(kind, fields)
    save(model, path)
    tokens = torch.randint(0, SIZES["vocab_size"], (SAMPLES * SEQUENCE + 1,), generator=torch.Generator().manual_seed(SEED))
    decayed = [p.dim() > 1 and "bias" not in n for n, p in model.named_parameters()]
    groups = [{"params": [p for p, d in zip(model.parameters(), decayed) if d == decays], "weight_decay": DECAY * decays}
              for decays in (False, True)]
    update = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPSILON, foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        update.zero_grad()
        logits, loss, whole = loss_of(model, tokens)
        whole.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters()))
        if step == 0:
            golden = {"tokens": tokens, "logits": logits.detach().clone()}
            save(with_values(model, [p.grad for p in model.parameters()]), path / "gradients")
        assert norm > CLIP, f"{name}: step {step} is not clipped"
        for parameter in model.parameters():
            parameter.grad *= CLIP / (norm + 1e-6)  # As torch.nn.utils.clip_grad_norm_, which takes the norm in f32.
        update.step()
        losses.append(loss.detach())
        norms.append(norm)
    save(model, path / "after")
    golden |= {"losses": torch.stack(losses), "grad_norms": torch.stack(norms)}
    safetensors.torch.save_file(golden, path / "golden.safetensors")
    print(name, sum(p.numel() for p in model.parameters()), "parameters, loss", losses[0].item(), "to", losses[-1].item())


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        write(case, *CASES[case])
