"""What is measured on a GPU: training steps of models, and layers of models."""
import dataclasses
import json
import pathlib

HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Case:
    """A training step, as bench/train_step and its neighbours are asked for one."""
    model: str  # A preset, or the name of a file in layers/ (bench/step_case.h says of what form).
    micro: int  # Sequences of the step, which has one micro-batch.
    sequence: int  # Tokens of one.
    gib: int  # Of the device that it needs.
    layers: int = 0  # 0: all.
    deterministic: bool = True
    steps: int = 12  # That are timed.
    state: str = "F32"  # Of AdamW.
    precision: str = "BF16"
    offload: bool = False  # AdamW's state is in the host's memory.
    packed: bool = False  # Sequences hold documents, whose attention our kernels compute.

    def __str__(self):
        layers = f" of {self.layers} layers" if self.layers else ""
        order = "" if self.deterministic else ", any order"
        state = "" if self.state == "F32" else f", {self.state}"
        precision = "" if self.precision == "BF16" else f", {self.precision}"
        return f"{self.model}{layers}, {self.micro} x {self.sequence}{order}{state}{precision}" \
               f"{', offload' * self.offload}{', packed' * self.packed}"

    def options(self):
        file = HERE / f"layers/{self.model}.json"
        layers = ["--layers", self.layers] if self.layers else []
        return ["--case", file if file.exists() else self.model, "--micro", self.micro,
                "--sequence", self.sequence,
                "--deterministic", "true" if self.deterministic else "false", *layers,
                *(["--state", self.state] if self.state != "F32" else []),
                *(["--precision", self.precision.lower()] if self.precision != "BF16" else []),
                *["--offload"] * self.offload, *["--documents", 5] * self.packed]

    def tokens(self):
        return self.micro * self.sequence

    def any_order(self):
        return dataclasses.replace(self, deterministic=False)

    def in_8_bits(self, precision, gib):
        return dataclasses.replace(self, precision=precision, gib=gib)


GPT2, LLAMA_1B, LLAMA_7B = "gpt2-124m", "llama3.2-1b", "llama2-7b"
ROW_BESIDE_PYTORCH = Case(LLAMA_1B, 4, 4096, 46)
ROW_7B = Case(LLAMA_7B, 1, 4096, 70, layers=16)
# A row in 8 bits comes right after its row in bf16. All published rows in 8 bits are FP8_DELAYED.
ROWS = [
    Case(GPT2, 16, 1024, 9),
    Case(GPT2, 64, 1024, 24),
    ROW_BESIDE_PYTORCH,
    ROW_BESIDE_PYTORCH.in_8_bits("FP8_DELAYED", 44),
    ROW_7B,
    ROW_7B.in_8_bits("FP8_BLOCKWISE", 70),
]
ROWS += [ROWS[0].any_order(), ROWS[2].any_order()]
PRODUCTS = [ROWS[0], ROWS[2], ROW_7B]
MORE_ROWS = [
    Case("gpt2-1558m", 16, 1024, 67),
    dataclasses.replace(ROWS[2], gib=39, state="COMPACT"),
    ROW_BESIDE_PYTORCH.in_8_bits("FP8_CURRENT", 44),
    dataclasses.replace(ROWS[2], gib=32, offload=True),
    *(ROW_7B.in_8_bits(precision, 70)
      for precision in ("FP8_CURRENT", "FP8_DELAYED", "FP8_ROWWISE")),
]
# One layer has all shapes. The CPU computes the same, so that there is one sequence. All layers run
# side by side, so that a GPU of 80 GB must hold them together. The DeepSeek layer is its preset's:
# latent attention, YaRN, experts in groups, a shared expert, and both ways to balance experts. It
# has 8 experts in 2 groups in place of 256 in 8: a token goes to 2 experts of its better group. The
# gpt-oss layer has sinks and a window of 128 tokens, and 4 experts in place of 32.
LAYERS_OF_FEW_WORDS = [
    Case("qwen3_moe", 1, 1024, 12),
    Case("deepseek_v3", 1, 1024, 13),
    Case("mamba2", 1, 1024, 3),
    Case("gpt_oss", 1, 1024, 5),
    Case("llama_packed", 1, 1024, 3, packed=True),
]
LAYERS = [
    Case(GPT2, 1, 1024, 2, layers=1),
    Case(LLAMA_1B, 1, 1024, 7, layers=1),
    Case(LLAMA_7B, 1, 1024, 9, layers=1),
    *LAYERS_OF_FEW_WORDS,
]
# Every op of each recipe, with the bits of a CPU where it rounds.
LAYERS += [LAYERS[1].in_8_bits("FP8_DELAYED", 7), LAYERS[1].in_8_bits("FP8_BLOCKWISE", 7)]
MORE_LAYERS = [Case("gpt2-1558m", 1, 1024, 4, layers=1),
               LAYERS[1].in_8_bits("FP8_CURRENT", 7), LAYERS[1].in_8_bits("FP8_ROWWISE", 7)]
TINY = Case("byte", 1, 256, 1, layers=1, steps=1)


def golden_curves():
    """By case: [loss, gradient norm] of each step on a CPU."""
    found = json.loads((HERE / "golden_curves.json").read_text())["curves"]
    return {Case(**golden["case"]): golden["curve"] for golden in found}
