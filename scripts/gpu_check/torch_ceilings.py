"""The best that PyTorch reaches on this GPU: bytes a second of a copy, read and written, and FLOP/s
of products of 8,192 in bf16 and in FP8. Operands are random: zeroes draw less power and are faster.

Prints what it knows so far, one JSON line after another.
"""
import json
import time

import torch

SIDE = 8192
COPIED = 1 << 30  # Elements of bf16.
RUNS = 20


def seconds_of(work):
    """Of one run, after a warm-up."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(RUNS):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / RUNS


def main():
    a = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    flops = 2 * SIDE ** 3
    found = {"version": torch.__version__, "bf16_flops": flops / seconds_of(lambda: a @ b)}
    source = torch.randn(COPIED, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    found["copy_bytes"] = 2 * 2 * COPIED / seconds_of(lambda: target.copy_(source))
    print(json.dumps(found), flush=True)
    one = torch.ones((), device="cuda")
    a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
    product = lambda: torch._scaled_mm(a8, b8, one, one, out_dtype=torch.bfloat16)
    found["fp8_flops"] = flops / seconds_of(product)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
