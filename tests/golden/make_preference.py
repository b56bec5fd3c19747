"""Writes preference/CASE.safetensors beside itself: what TRL's losses of pairs train of models of hf/, in f64.

  preference/pairs.jsonl       {"prompt": [ids], "chosen": [ids], "rejected": [ids]}: each step has all of them
  preference/CASE.safetensors  losses, norms, and rewards of each step
  preference/after/CASE.safetensors      what is trained, after the last step, by the names of the model's directory or, of an
                                         adapter, of checkpoints
  preference/gradients/CASE.safetensors  of DPO, the second step's clipped gradients; in the first, those of lora_A are zero

TRL computes the losses: DPOTrainer._compute_loss, whose reference is another copy of the model, or the model without
its adapter; and ORPOTrainer.get_batch_loss_metrics. That one also learns prompts, so prompts have one token here, which
nothing predicts. tests/train/hf/golden_preference_test.cc runs whatever is there.

pip install "trl==1.16.0" "peft==0.21.2" "transformers==5.24.0" "torch==2.15.0" "safetensors==0.8.0"
make_preference.py [CASE...]
"""
import collections
import copy
import json
import pathlib
import sys
import tempfile
import types

import safetensors.torch  # Before torch's types are replaced.
import torch

# What that code takes in f32 (norms, softmax, rotary tables, odds) is taken in f64 here.
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)

import accelerate  # noqa: E402
import peft  # noqa: E402
import transformers  # noqa: E402
import trl.trainer.dpo_trainer as dpo  # noqa: E402
from make_hf import save, with_values  # noqa: E402
from make_lora import first_values, our_name  # noqa: E402
from trl.experimental.orpo import ORPOTrainer  # noqa: E402

HERE = pathlib.Path(__file__).parent / "preference"
STEPS, VOCABULARY, BETA = 20, 13, 0.7
# As in make_hf.py.
RATE, BETAS, EPSILON, DECAY, CLIP = 1e-2, (0.9, 0.95), 1e-3, 0.1, 0.05
LORA = {"r": 3, "lora_alpha": 6, "target_modules": "all-linear"}
# Tokens of both answers. With one token before each, pairs take 16, 15, 14, 8 and 7 places: four samples of 16.
ANSWERS = [(9, 7), (5, 10), (7, 7), (3, 5), (5, 2)]


def make_pairs():
    draw = torch.Generator().manual_seed(7)

    def ids(count):
        return torch.randint(0, VOCABULARY, (count,), generator=draw).tolist()

    return [{"prompt": ids(1), "chosen": ids(chosen), "rejected": ids(rejected)} for chosen, rejected in ANSWERS]


def load(base):
    path = HERE.parent / "hf" / base
    model = transformers.AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
    assert model.dtype == torch.float64
    model.config._experts_implementation = "eager"
    return model


def add_adapter(model, base):
    model = peft.get_peft_model(model, peft.LoraConfig(**LORA, task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_A" in name:
                parameter.copy_(first_values(our_name(base, name), tuple(parameter.shape)))
    return model.eval()


def named(model, base, adapted, values, are_gradients=False):
    """The values of the parameters that are trained, by what directories or, of adapters, checkpoints call them."""
    if adapted:
        return {our_name(base, name): value.detach().clone() for name, value in values.items()}
    other = with_values(model, values.values())
    for name, buffer in other.named_buffers():
        if are_gradients and name.endswith("e_score_correction_bias"):
            buffer.zero_()
    with tempfile.TemporaryDirectory() as directory:  # Which has the tensors as directories have them.
        save(other, pathlib.Path(directory))
        return safetensors.torch.load_file(f"{directory}/model.safetensors")


def save_tensors(tensors, name):
    path = HERE / f"{name}.safetensors"
    path.parent.mkdir(exist_ok=True)
    safetensors.torch.save_file(tensors, path)


def dpo_loss(model, pairs):
    """Returns a function that gives the loss, and the metrics of all steps so far."""
    trainer = object.__new__(dpo.DPOTrainer)
    adapted = isinstance(model, peft.PeftModel)
    trainer.model, trainer.ref_model = model, None if adapted else copy.deepcopy(model)
    fields = ("log_probs", "entropy", "mean_logits", "is_top1")
    for one in (model.get_base_model(),) if adapted else (model, trainer.ref_model):
        dpo.add_fused_lm_head(one, outputs=fields)
    trainer.accelerator = accelerate.Accelerator(cpu=True)
    trainer.args = types.SimpleNamespace(gradient_checkpointing_kwargs=None)
    trainer.beta, trainer.label_smoothing, trainer.ld_alpha = BETA, 0.0, None
    trainer.loss_types, trainer.loss_weights, trainer.f_divergence_type = ["sigmoid"], [1.0], "reverse_kl"
    trainer.precompute_ref_logps = trainer.aux_loss_enabled = trainer.use_weighting = False
    trainer._metrics = {"eval": collections.defaultdict(list)}
    trainer._total_train_tokens = 0
    batch = dpo.DataCollatorForPreference(pad_token_id=0).torch_call(
        [{f"{part}_ids": ids for part, ids in pair.items()} for pair in pairs])
    return lambda: (trainer._compute_loss(model, batch, False), trainer._metrics["eval"])


def orpo_loss(model, pairs):
    trainer = object.__new__(ORPOTrainer)
    trainer.accelerator = accelerate.Accelerator(cpu=True)
    trainer.beta, trainer.is_encoder_decoder, trainer.aux_loss_enabled = BETA, False, False
    trainer.padding_value = trainer.label_pad_token_id = 0
    longest = 1 + max(max(lengths) for lengths in ANSWERS)
    batch = {}
    for side in ("chosen", "rejected"):
        rows = [pair["prompt"] + pair[side] for pair in pairs]
        labels = [[-100] * len(pair["prompt"]) + pair[side] for pair in pairs]
        batch[f"{side}_input_ids"] = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        batch[f"{side}_attention_mask"] = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        batch[f"{side}_labels"] = torch.tensor([row + [-100] * (longest - len(row)) for row in labels])
    trainer.label_pad_token_id = -100
    metrics = collections.defaultdict(list)

    def loss():
        value, found = trainer.get_batch_loss_metrics(model, batch)
        for name, number in found.items():
            metrics[name].append(number)
        return value, metrics

    return loss


def write(name, base, adapted, make_loss):
    model = add_adapter(load(base), base) if adapted else load(base)
    loss = make_loss(model, PAIRS)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    groups = [{"params": [p for n, p in trained.items() if (p.dim() > 1 and "bias" not in n) == decays],
               "weight_decay": DECAY * decays} for decays in (False, True)]
    update = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPSILON, foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        update.zero_grad()
        value, metrics = loss()
        assert value.dtype == torch.float64
        value.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in trained.values()))
        for parameter in trained.values():
            # As torch.nn.utils.clip_grad_norm_, which takes the norm in f32.
            parameter.grad *= torch.clamp(CLIP / (norm + 1e-6), max=1.0)
        if step == 1 and make_loss == dpo_loss:
            gradients = named(model, base, adapted, {n: p.grad for n, p in trained.items()}, True)
            save_tensors(gradients, f"gradients/{name}")
        update.step()
        losses.append(value.detach())
        norms.append(norm)
    save_tensors(named(model, base, adapted, trained), f"after/{name}")
    numbers = {"losses": torch.stack(losses), "grad_norms": torch.stack(norms)}
    for ours, theirs in (("chosen_rewards", "rewards/chosen"), ("rejected_rewards", "rewards/rejected"),
                         ("margins", "rewards/margins"), ("accuracies", "rewards/accuracies")):
        numbers[ours] = torch.tensor(metrics[theirs])
    save_tensors(numbers, name)
    print(name, "loss", losses[0].item(), "to", losses[-1].item(), "margin", metrics["rewards/margins"][-1])


# A model of every family of text, and adapters of some.
FAMILIES = ("llama", "gpt3", "qwen2", "qwen3", "gemma3_tied", "nemotron", "nemotron_h", "mixtral", "qwen3_moe", "gpt_oss",
            "deepseek_v3")
ADAPTED = ("llama", "gpt3", "qwen3", "gemma3_tied")
# Name: the directory of hf/, whether it has an adapter, and the loss.
CASES = {f"dpo_{base}": (base, False, dpo_loss) for base in FAMILIES}
CASES |= {f"orpo_{base}": (base, False, orpo_loss) for base in FAMILIES}
CASES |= {f"dpo_lora_{base}": (base, True, dpo_loss) for base in ADAPTED}

if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    PAIRS = make_pairs()
    (HERE / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    for case in sys.argv[1:] or CASES:
        write(case, *CASES[case])
