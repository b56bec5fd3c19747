"""Writes safetensors/ beside itself: files of the public implementation, for the reader's test.

pip install "safetensors==0.8.0" "numpy==2.4.6"
"""
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent / "safetensors"
TYPES = {"BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "U16": np.uint16, "F16": np.float16,
         "I32": np.int32, "U32": np.uint32, "F32": np.float32, "I64": np.int64, "U64": np.uint64, "F64": np.float64}

# --- All dtypes that NumPy has; a scalar, an empty tensor, and a name that is not ASCII.
(HERE / "types").mkdir(parents=True, exist_ok=True)
tensors = {name: np.arange(6).reshape(2, 3).astype(dtype) for name, dtype in TYPES.items()}
tensors |= {"scalar": np.array(1.5, np.float32), "empty": np.zeros((3, 0), np.float32), "größe/λ": np.array([7], np.uint8)}
save_file(tensors, HERE / "types" / "model.safetensors", metadata={"format": "pt"})
(HERE / "types" / "config.json").write_text('{"model_type": "none"}\n')

# --- Two shards with an index.
(HERE / "shards").mkdir(exist_ok=True)
shards = {"model-00001-of-00002.safetensors": {"a": np.arange(4, dtype=np.float32), "b": np.arange(3, dtype=np.int32)},
          "model-00002-of-00002.safetensors": {"c": np.full((2, 2), 2.5)}}
for name, content in shards.items():
    save_file(content, HERE / "shards" / name)
weight_map = {tensor: name for name, content in shards.items() for tensor in content}
(HERE / "shards" / "model.safetensors.index.json").write_text(
    json.dumps({"metadata": {"total_size": 60}, "weight_map": weight_map}, indent=1) + "\n")
(HERE / "shards" / "config.json").write_text('{"model_type": "none"}\n')
