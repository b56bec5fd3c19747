"""Writes dit.golden beside itself, from an independent public implementation.

pip install "diffusers==0.42.1" "torch==2.15.0"
"""
import math
import pathlib

import torch
from diffusers import DiTTransformer2DModel
from diffusers.models import embeddings
from golden import hash_name, normal, random_bits, weight

HERE = pathlib.Path(__file__).parent
LAYERS, HEADS, HEAD, CHANNELS, SIDE, PATCH, CLASSES, BATCH = 3, 3, 4, 3, 6, 2, 7, 3
HIDDEN, GRID = HEADS * HEAD, SIDE // PATCH
EMBEDDER = "transformer_blocks.0.norm1.emb"

model = DiTTransformer2DModel(num_attention_heads=HEADS, attention_head_dim=HEAD, in_channels=CHANNELS,
                              num_layers=LAYERS, sample_size=SIDE, patch_size=PATCH, num_embeds_ada_norm=CLASSES,
                              norm_eps=1e-3).double().eval()


# --- What that code computes in f32 whatever the model's dtype, here in f64, by the papers' formulas.
class Times(torch.nn.Module):
    def forward(self, times):
        half = 128
        angle = times[:, None].double() * 10000 ** (-torch.arange(half, dtype=torch.float64) / (half - 1))
        return torch.cat([angle.cos(), angle.sin()], -1)


def positions():
    quarter = HIDDEN // 4
    frequency = 10000 ** (-torch.arange(quarter, dtype=torch.float64) / quarter)
    place = torch.arange(GRID, dtype=torch.float64)
    row, column = (p.reshape(-1, 1) * frequency for p in torch.meshgrid(place, place, indexing="ij"))
    return torch.cat([column.sin(), column.cos(), row.sin(), row.cos()], -1)[None]


# The same in f32 shows that the formulas are that code's.
times = torch.tensor([0, 999, 421])
public = embeddings.Timesteps(256, flip_sin_to_cos=True, downscale_freq_shift=1)
assert torch.allclose(Times()(times).float(), public(times), atol=1e-4)
assert torch.allclose(positions().float(), model.pos_embed.pos_embed.float(), atol=1e-6)
model.pos_embed.pos_embed = positions()

# That code has an embedder in each block, and released checkpoints hold as many copies. One module in all blocks has the
# sum of their gradients, as ours has.
for block in model.transformer_blocks:
    block.norm1.emb = model.transformer_blocks[0].norm1.emb
model.transformer_blocks[0].norm1.emb.time_proj = Times()


# By our names and shapes: the convolution of the patches is a matrix.
def parameters():
    for name, parameter in model.named_parameters():  # Shared ones once, by the first name.
        yield name, parameter, (parameter.shape[0], -1) if name == "pos_embed.proj.weight" else parameter.shape


with torch.no_grad():
    for name, parameter, _ in parameters():
        parameter.copy_(torch.tensor(weight(name, tuple(parameter.shape))))

labels = torch.tensor([2, CLASSES, 0])  # The second is dropped.
shape = (BATCH, CHANNELS, SIDE, SIDE)
latents, target = (torch.tensor([normal(stream, 0, i) for i in range(math.prod(shape))],
                                dtype=torch.float64).reshape(shape) for stream in (5, 6))
# Inputs of other programs are f32.
latents, target = latents.float().double(), target.float().double()
prediction = model(latents, timestep=times, class_labels=labels).sample
assert prediction.dtype == torch.float64
torch.nn.functional.mse_loss(prediction, target).backward()

HEADER = """# Predictions and gradients of DiTTransformer2DModel, diffusers 0.42.1 with torch 2.15.0 in f64 on the CPU. What that code
# computes in f32 (sinusoids of times, and of positions) is replaced by the same in f64; all blocks share the embedder of block
# 0. Made by make_dit.py.
# layers 3, heads 3 of 4, hidden 12, in_channels 3, sample_size 6, patch_size 2, num_classes 7, norm_eps 1e-3.
# Weights: 0.3 Normal(11, HashName(name), i) of common/rng.h, i the row-major index of the matrix.
# Latents and targets [3, 3, 6, 6]: Normal(5, 0, i) and Normal(6, 0, i), rounded to f32. Predictions, a line a sample, in the
# order of the latents. Gradients are of the mean square of prediction less target. Of each tensor: its norm, and its product
# with Normal(13, HashName(name), i).
"""
with open(HERE / "dit.golden", "w") as out:
    out.write(HEADER)
    out.write("times " + " ".join(map(str, times.tolist())) + "\n")
    out.write("labels " + " ".join(map(str, labels.tolist())) + "\n")
    for sample in prediction.detach():
        out.write(" ".join(f"{x:.17g}" for x in sample.reshape(-1).tolist()) + "\n")
    for name, parameter, ours in parameters():
        flat = parameter.grad.reshape(ours).reshape(-1).tolist()
        along = sum(g * normal(13, hash_name(name), i) for i, g in enumerate(flat))
        out.write(f"gradient {name} {math.sqrt(sum(g * g for g in flat)):.17g} {along:.17g}\n")
