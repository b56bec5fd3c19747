"""Writes sft/ beside itself: what `transformers` trains of models of hf/ on the answers of conversations, in f64.

  sft/chats.jsonl                     {"segments": [{"ids": [...], "train": BOOL}, ...]}: each step has all conversations
  sft/CASE/golden.safetensors         loss and gradient norm of each step
  sft/CASE/gradients/, sft/CASE/after/   the model, with the first step's clipped gradients and with the parameters after
                                      the last step in the place of its weights

Nothing is packed here. Each conversation is computed alone, and the loss is the sum over the targets that count, divided
by their number. tests/train/hf/golden_sft_test.cc packs the same conversations, and runs whatever is there.

pip install "transformers==5.24.0" "torch==2.15.0" "safetensors==0.8.0"
make_sft.py [CASE...]
"""
import json
import pathlib
import shutil
import sys

import safetensors.torch  # Before torch's types are replaced.
import torch
from make_hf import BETAS, CLIP, DECAY, EPSILON, RATE, SIZES, save, with_values  # Replaces the types.

import transformers  # noqa: E402

HF = pathlib.Path(__file__).parent / "hf"
HERE = pathlib.Path(__file__).parent / "sft"
STEPS = 20
# A model of each family that `transformers` has. None of them has a loss that balances experts. Of Gemma 3 it is the one
# of three layers: with seven layers, a change of the last bits of the weights becomes 1e-7 of the loss in twenty steps.
CASES = ["llama", "gpt3", "qwen2", "qwen3", "qwen3_moe", "mixtral", "nemotron", "nemotron_h", "deepseek_v3", "gemma3_tied",
         "gpt_oss"]
# Tokens of the turns of each conversation: question, answer, question, and so on. A conversation takes a place less than
# it has tokens: 16, 13, 6, 5, 5, 5, 5, and 4. In whatever order these come, three of the last six fill a sample of 16
# places and four do not, so there are always four samples.
CONVERSATIONS = [(2, 3, 4, 5, 1, 2), (5, 4, 1, 4), (1, 6), (3, 3), (2, 1, 2, 1), (4, 2), (1, 1, 3, 1), (2, 3)]


def make_chats():
    draw = torch.Generator().manual_seed(17)
    return [[(torch.randint(0, SIZES["vocab_size"], (tokens,), generator=draw).tolist(), turn % 2 == 1)
             for turn, tokens in enumerate(turns)] for turns in CONVERSATIONS]


def loss_of(model, chats):
    total, counted = 0.0, 0
    for turns in chats:
        tokens = torch.tensor([token for ids, _ in turns for token in ids])
        counts = torch.tensor([train for ids, train in turns for _ in ids])[1:]
        logits = model(tokens[None, :-1]).logits[0]
        assert logits.dtype == torch.float64
        total = total + torch.nn.functional.cross_entropy(logits[counts], tokens[1:][counts], reduction="sum")
        counted += int(counts.sum())
    return total / counted


def write(name, chats):
    path = HERE / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(HF / name, attn_implementation="eager",
                                                              dtype=torch.float64).eval()
    model.config._experts_implementation = "eager"
    groups = [{"params": [p for n, p in model.named_parameters() if (p.dim() > 1 and "bias" not in n) == decays],
               "weight_decay": DECAY * decays} for decays in (False, True)]
    update = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPSILON, foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        update.zero_grad()
        loss = loss_of(model, chats)
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters()))
        assert norm > CLIP, f"{name}: step {step} is not clipped"
        for parameter in model.parameters():
            parameter.grad *= CLIP / (norm + 1e-6)  # As torch.nn.utils.clip_grad_norm_, which takes the norm in f32.
        if step == 0:
            gradients = with_values(model, [p.grad for p in model.parameters()])
            for buffer_name, buffer in gradients.named_buffers():
                if buffer_name.endswith("e_score_correction_bias"):
                    buffer.zero_()
            save(gradients, path / "gradients")
        update.step()
        losses.append(loss.detach())
        norms.append(norm)
    save(model, path / "after")
    safetensors.torch.save_file({"losses": torch.stack(losses), "grad_norms": torch.stack(norms)},
                                path / "golden.safetensors")
    print(name, "loss", losses[0].item(), "to", losses[-1].item())


if __name__ == "__main__":
    CHATS = make_chats()
    HERE.mkdir(exist_ok=True)
    (HERE / "chats.jsonl").write_text("".join(
        json.dumps({"segments": [{"ids": ids, "train": train} for ids, train in turns]}) + "\n" for turns in CHATS))
    for case in sys.argv[1:] or CASES:
        write(case, CHATS)
