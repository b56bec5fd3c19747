"""A notebook: trains a tiny model, and makes a table of its steps.

Start a service first (`trainyard up`). Editors and Jupytext show each `# %%` as a cell.
"""
# %% Connect to the controller that `trainyard` would call.
import pandas

import trainyard

client = trainyard.Client()
print(client.workers())

# %% A spec is a dict with the fields of a YAML spec.
spec = {
    "name": "quickstart",
    "model": {
        "preset": "llama3-8b",
        "overrides": {"layers": 2, "hidden": 64, "ffn": 192, "heads": 4, "kv_heads": 2,
                      "vocab": 256, "max_seq": 64},
    },
    "precision": "F32",
    "batch": {"global": 8, "micro": 4, "sequence": 64},
    "data": {"synthetic": {}},
    "optimizer": {"adamw": {"learning_rate": 3e-3}},
    "validation": {"every_steps": 20},
    "steps": 40,
}

# %% Mistakes are named before anything runs.
try:
    client.validate({**spec, "batch": {"global": 7, "micro": 4, "sequence": 64}})
except trainyard.InvalidSpec as error:
    for violation in error.violations:
        print(violation.field, "-", violation.description)

# %% Train.
job = client.submit(spec)
for now in client.watch(job):
    print(now.state, f"step {now.step}/{now.total_steps}", f"loss {now.loss:.3f}")

# %% The steps as a table.
steps = pandas.DataFrame(client.steps(job))
print(steps[["step", "loss", "validation_loss", "seconds", "mfu"]].tail())
print("tokens a second:", round(steps.tokens.sum() / steps.seconds.sum()))

# %% What became of it. `wait` raises JobFailed with the reason if there is one.
print(client.wait(job).state)
for event in client.events(job):
    print(event.time, event.type, event.message)

# %% Done.
client.close()
