"""Writes narrow.golden: what `ml_dtypes` makes of each of the 65,536 numbers of bf16 in the 8-bit formats e4m3 and e5m2.

A line is a run of neighbouring bit patterns that become the same byte: the format, the first pattern and the byte, in hex.
`ml_dtypes` lets numbers beyond the largest overflow, so finite numbers are clipped to it first. Every NaN is 7f or ff.

pip install ml_dtypes==0.6.0
"""
import pathlib

import ml_dtypes
import numpy as np

OUT = pathlib.Path(__file__).parent / "narrow.golden"


def runs(name, dtype):
    bits = np.arange(1 << 16, dtype=np.uint32)
    x = bits.astype(np.uint16).view(ml_dtypes.bfloat16)
    wide = x.astype(np.float32)
    largest = float(ml_dtypes.finfo(dtype).max)
    wide = np.where(np.isfinite(wide), np.clip(wide, -largest, largest), wide)
    narrow = wide.astype(dtype)
    codes = narrow.view(np.uint8).copy()
    nan = np.isnan(narrow.astype(np.float32))
    codes[nan] = np.where(bits[nan] >> 15 != 0, 0xff, 0x7f)
    last = -1
    for pattern, code in zip(bits.tolist(), codes.tolist()):
        if code != last:
            yield f"{name} {pattern:04x} {code:02x}"
        last = code


lines = [*runs("e4m3", ml_dtypes.float8_e4m3fn), *runs("e5m2", ml_dtypes.float8_e5m2)]
OUT.write_text("\n".join(lines) + "\n")
