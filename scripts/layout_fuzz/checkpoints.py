"""Checkpoints of a job in F64 (docs/formats.md), as whole tensors."""
import itertools
import json
import math


def newest_manifest(directory):
    """The path of the newest checkpoint's manifest below a job's checkpoint directory."""
    found = {int(path.parent.name.removeprefix("step-")): path
             for path in directory.glob("epoch-*/step-*/manifest.json")}
    return found[max(found)]


def read_manifest(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def trained_parameters(directory):
    """The names of the parameters that the newest checkpoint holds."""
    tensors = read_manifest(newest_manifest(directory))["tensors"]
    return sorted(tensor["name"] for tensor in tensors if tensor["kind"] == "parameter")


def read_tensors(directory):
    """{(kind, name): elements in C order} of the newest checkpoint, frozen parameters included."""
    path = newest_manifest(directory)
    manifests = [(path, read_manifest(path))]
    if "base" in manifests[0][1]:
        base = path.parent / manifests[0][1]["base"]["path"] / "manifest.json"
        manifests.append((base, read_manifest(base)))
    return {(tensor["kind"], tensor["name"]): whole(place.parent, tensor)
            for place, manifest in manifests for tensor in manifest["tensors"]}


def whole(directory, tensor):
    """Puts a tensor together from its boxes, a run of the last dim at a time."""
    if tensor["dtype"] != "f64":
        raise ValueError(f"{tensor['name']}: wanted f64, found {tensor['dtype']}")
    *outer, columns = tensor["shape"]
    strides = [math.prod(outer[i + 1:]) * columns for i in range(len(outer))]
    elements = memoryview(bytearray(8 * math.prod(tensor["shape"]))).cast("d")
    for box in tensor["boxes"]:
        *offsets, first = box["offset"]
        *extents, width = box["extent"]
        with open(directory / box["file"], "rb") as file:
            file.seek(box["file_offset"])
            values = memoryview(file.read(8 * math.prod(box["extent"]))).cast("d")
        places = itertools.product(*(range(o, o + e) for o, e in zip(offsets, extents)))
        for number, place in enumerate(places):
            begin = first + sum(index * stride for index, stride in zip(place, strides))
            elements[begin:begin + width] = values[number * width:(number + 1) * width]
    return elements
