#!/usr/bin/env python3
"""Where a step's time goes, by layout: the quickstart's model through the service, medians of each phase.

  bench/layout_phases.py [--devices 2] [--steps 12] [--rounds 2]

Starts a service of its own. Each round runs every layout once, so that a machine's moods meet all of them; the first two
steps of a job are left out. Needs build/bin (scripts/build.sh).
"""
import argparse
import json
import os
import re
import statistics
from pathlib import Path

from service import ROOT, Service

WARMUP = 2
PHASES = ("forward", "backward", "grad_sync", "optimizer", "pipeline_bubble")
PIPELINE = ("parallelism.pipeline={n}", "batch.micro=2")
# The same blocks, with two of eight experts, half as wide as the MLP, for each token.
EXPERTS = ("model.preset=qwen3-30b-a3b", "model.overrides.moe.experts=8", "model.overrides.moe.top_k=2",
           "model.overrides.moe.expert_ffn=384")
LAYOUTS = {
    "data, zero NONE": ("parallelism.zero=NONE",),
    "data, zero OPTIMIZER": (),
    "data, zero FULL": ("parallelism.zero=FULL",),
    "tensor": ("parallelism.tensor={n}",),
    "context, RING": ("parallelism.context={n}",),
    "context, ALL_GATHER": ("parallelism.context={n}", "parallelism.context_exchange=ALL_GATHER"),
    "pipeline, GPIPE": (*PIPELINE, "parallelism.schedule=GPIPE"),
    "pipeline, 1F1B": PIPELINE,
    "pipeline, INTERLEAVED (2 virtual)": (*PIPELINE, "parallelism.virtual_pipeline=2"),
    "pipeline, ZERO_BUBBLE": (*PIPELINE, "parallelism.schedule=ZERO_BUBBLE"),
    "pipeline, V_HALF": (*PIPELINE, "parallelism.schedule=V_HALF"),
    "data, recompute blocks": ("recompute.blocks=6",),
    "8 experts, data": EXPERTS,
    "8 experts, expert": (*EXPERTS, "parallelism.expert={n}"),
}


def spec_text(steps):
    text = (ROOT / "recipes/quickstart.yaml").read_text()
    for pattern, line in (("^data: .*", "data: {synthetic: {}}"), ("^steps: .*", f"steps: {steps}"),
                          (", schedule: {cosine: {warmup_steps: 20}}", ""), ("^(validation|checkpoint): .*\\n", "")):
        text, found = re.subn(pattern, line, text, flags=re.M)
        assert found, pattern
    return text


def measure(service, spec, devices, settings):
    sets = [word for setting in (f"devices={devices}", *settings) for word in ("--set", setting.format(n=devices))]
    job = service.run("submit", spec, *sets).strip()
    service.run("watch", job, "--quiet")
    lines = service.run("steps", job, "-o", "jsonl").splitlines()
    return [json.loads(line) for line in lines][WARMUP:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    records = {name: [] for name in LAYOUTS}
    with Service(arguments.devices) as service:
        spec = os.path.join(service.directory, "layout.yaml")
        Path(spec).write_text(spec_text(arguments.steps))
        for _ in range(arguments.rounds):
            for name, settings in LAYOUTS.items():
                records[name] += measure(service, spec, arguments.devices, settings)
    print(f"| layout, {arguments.devices} ranks | step, ms | {' | '.join(PHASES)} | tokens/s |")
    print("|---|" + "---|" * (len(PHASES) + 2))
    for name, steps in records.items():
        seconds = statistics.median(step["seconds"] for step in steps)
        phases = [statistics.median(step["phases"][phase] for step in steps) for phase in PHASES]
        cells = [f"{1e3 * value:.0f}" for value in (seconds, *phases)]
        print(f"| {name} | {' | '.join(cells)} | {steps[0]['tokens'] / seconds:.0f} |")


if __name__ == "__main__":
    main()
