#!/usr/bin/env python3
"""The peer of bench/beside_pytorch.py for families of which PyTorch users take the model from `transformers`.

The model of a config.json with random weights, its own loss, bf16 by autocast, fused AdamW with clipping. Prints one JSON
line with every step's seconds and loss. The run comes as JSON in the first argument: config (the file's content), micro,
sequence, precision, threads, steps, attention and experts (implementations of `transformers`), compile; perhaps lora (the
rank of PEFT's adapters of all linear layers, beside a base in the run's precision) and adapters (their dtype).
"""
import json
import sys
import time

import torch
import transformers


def main():
    run = json.loads(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(run["threads"])
    config = transformers.AutoConfig.for_model(**run["config"])
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=run["attention"], dtype=torch.float32,
                                                          **({"experts_implementation": run["experts"]}))
    if "lora" in run:
        import peft
        adapter = peft.LoraConfig(r=run["lora"], lora_alpha=16, target_modules="all-linear")
        model = model.to(torch.bfloat16 if run["precision"] == "BF16" else torch.float32)
        model = peft.get_peft_model(model, adapter, autocast_adapter_dtype=run["adapters"] == "F32")
    model.train()
    optimizer = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], 3e-4, weight_decay=0.1, fused=True)
    forward = torch.compile(model) if run["compile"] else model
    seconds, losses = [], []
    for _ in range(run["steps"]):
        tokens = torch.randint(0, config.vocab_size, (run["micro"], run["sequence"]))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=run["precision"] == "BF16"):
            loss = forward(tokens, labels=tokens, use_cache=False).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"version": torch.__version__, "seconds": seconds, "losses": losses,
                      "parameters": sum(w.numel() for w in model.parameters())}))


if __name__ == "__main__":
    main()
