"""Converts job specs in Python, YAML or JSON to the API's message JobSpec and back.

A spec may be written as `trainyard submit` reads it: integers as 1000, 1e3 or "1000", and enum
values with or without their prefix. Unknown fields are errors. The controller knows more names than
this wheel: the fields that only one family of models has, and the pipeline schedules. Such a name
is sent as text, and the controller says whether it is legal.
"""
from __future__ import annotations

import difflib
import importlib
import json
import math
import numbers
import os
import re
from pathlib import Path
from typing import Any, Mapping, Union

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from trainyard.errors import InvalidArgument, InvalidSpec, NotFound, Violation
from trainyard.v1 import job_pb2

Spec = Union[Mapping[str, Any], str, "os.PathLike[str]", job_pb2.JobSpec]

_INTEGERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64,
             FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_NULLS = {"", "~", "null", "Null", "NULL"}
_LARGEST_EXACT = 2.0**53
_BESIDE = "fields"  # The map of the fields that a message does not have itself.
_NAME = "_name"  # The text field X_name holds the values that the enum of the field X lacks.


def to_message(spec: Spec) -> job_pb2.JobSpec:
    """Returns the message of a spec.

    A str is the text of a spec, unless it is one line that ends in .yaml, .yml or .json: then it
    is a path. Raises InvalidSpec with all fields that cannot be read. The controller
    finds illegal values.
    """
    message = job_pb2.JobSpec()
    if isinstance(spec, job_pb2.JobSpec):
        message.CopyFrom(spec)
        return message
    violations: list[Violation] = []
    _read(_tree(spec), "", message, violations)
    if violations:
        raise InvalidSpec(violations)
    return message


def to_dict(message: Message) -> dict[str, Any]:
    """Returns the fields that are set, as `to_message` takes them."""
    return {field.name: _plain(field, value) for field, value in message.ListFields()}


def enum_name(enum: Any, number: int) -> str:
    """Returns "RUNNING" for JOB_STATE_RUNNING, or the number if this wheel has no name for it."""
    descriptor: EnumDescriptor = enum.DESCRIPTOR
    value = descriptor.values_by_number.get(number)
    return str(number) if value is None else value.name.removeprefix(_prefix(descriptor))


def _prefix(enum: EnumDescriptor) -> str:
    return enum.values_by_number[0].name.removesuffix("UNSPECIFIED")


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _is_list(field: Any) -> bool:
    # protobuf 7 has the one attribute, releases before 6.31 the other.
    repeated = field.is_repeated if hasattr(field, "is_repeated") else (
        field.label == FieldDescriptor.LABEL_REPEATED)
    return bool(repeated) and not _is_map(field)


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if _is_map(field):
        return dict(value)
    if _is_list(field):
        return [to_dict(item) if field.message_type is not None else item for item in value]
    if field.message_type is not None:
        return to_dict(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name.removeprefix(_prefix(field.enum_type))
    return value


def _tree(spec: Any) -> Mapping[str, Any]:
    """Returns the mapping of a spec, which is a mapping itself, a text or a file."""
    if isinstance(spec, Mapping):
        return spec
    if isinstance(spec, str) and not re.fullmatch(r"[^\n{]*\.(yaml|yml|json)", spec):
        return _parse(spec, "the spec")
    if not isinstance(spec, (str, os.PathLike)):
        raise InvalidArgument("a spec is a dict, a text of YAML or JSON, a path or a JobSpec; "
                              f"found {type(spec).__name__}")
    try:
        return _parse(Path(spec).read_text(encoding="utf-8"), os.fspath(spec))
    except FileNotFoundError:
        raise NotFound(f"{os.fspath(spec)}: there is no such file") from None


def _parse(text: str, place: str) -> Mapping[str, Any]:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        return _parse_json(text, place)
    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
        tree = _of_node(yaml, node)
    except yaml.YAMLError as error:
        raise InvalidArgument(f"{place}: {error}") from error
    return _mapping(tree, place)


def _parse_json(text: str, place: str) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(text), place)
    except ValueError as error:
        raise InvalidArgument(f"{place}: wanted JSON: {error}. To read YAML, run: pip install "
                              "'trainyard[yaml]'") from error


def _mapping(tree: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(tree, Mapping):
        raise InvalidArgument(f"{place}: wanted a mapping of the fields of JobSpec")
    return tree


def _of_node(yaml: Any, node: Any) -> Any:
    """Returns the value of a YAML node. Scalars stay text: for PyYAML 1e-3 is not a number."""
    if isinstance(node, yaml.MappingNode):
        tree: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key that is not plain text",
                                           problem_mark=key.start_mark)
            if key.value in tree:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} a second time",
                                           problem_mark=key.start_mark)
            tree[key.value] = _of_node(yaml, value)
        return tree
    if isinstance(node, yaml.SequenceNode):
        return [_of_node(yaml, item) for item in node.value]
    plain = node is not None and node.style is None
    return None if node is None or (plain and node.value in _NULLS) else node.value


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _read(tree: Mapping[str, Any], path: str, message: Message,
          violations: list[Violation]) -> None:
    """Fills `message`, and adds everything that is wrong with `tree` to `violations`."""
    descriptor: Any = message.DESCRIPTOR
    chosen: dict[str, str] = {}  # Of each oneof, the member that was written.
    for key, value in tree.items():
        field = descriptor.fields_by_name.get(key)
        beside = descriptor.fields_by_name.get(_BESIDE)
        if field is None and beside is not None:
            _read_field({key: value}, path, beside, (message, violations))
            continue
        if field is None:
            violations.append(Violation(_join(path, str(key)), _unknown(str(key), descriptor)))
            continue
        oneof = field.containing_oneof
        # An optional field stands in a oneof that protoc made.
        if oneof is not None and not oneof.name.startswith("_"):
            first = chosen.setdefault(oneof.name, key)
            if first != key:
                violations.append(Violation(
                    path, f"wanted one {oneof.name}, found {first} and {key}"))
                continue
        _read_field(value, _join(path, key), field, (message, violations))


def _unknown(key: str, descriptor: Descriptor) -> str:
    names = [field.name for field in descriptor.fields]
    near = difflib.get_close_matches(key, names, 1)
    if near:
        return f"unknown field; did you mean {near[0]!r}?"
    return f"unknown field; known here: {' '.join(names) or 'none'}"


def _read_field(value: Any, path: str, field: FieldDescriptor,
                target: tuple[Message, list[Violation]]) -> None:
    message, violations = target
    if _is_list(field):
        if value is not None and not isinstance(value, (list, tuple)):
            violations.append(Violation(path, f"wanted a list, found {_found(value)}"))
            return
        for i, item in enumerate(value or ()):
            place = f"{path}[{i}]"
            if field.message_type is None:
                _set(item, place, field, target)
            elif isinstance(item, Mapping):
                _read(item, place, getattr(message, field.name).add(), violations)
            else:
                violations.append(Violation(place, f"wanted a mapping, found {_found(item)}"))
    elif field.message_type is None:
        _set(value, path, field, target)
    elif value is not None and not isinstance(value, Mapping):
        violations.append(Violation(path, f"wanted a mapping, found {_found(value)}"))
    elif _is_map(field):
        for key, item in (value or {}).items():
            text = _text(item)
            if text is not None and str(key) in getattr(message, field.name):
                violations.append(Violation(_join(path, str(key)),
                                            f"wanted once, here or in {field.name}, found both"))
            elif text is None:
                violations.append(Violation(_join(path, str(key)),
                                            f"wanted text, found {_found(item)}"))
            else:
                getattr(message, field.name)[str(key)] = text
    else:
        part: Message = getattr(message, field.name)
        part.SetInParent()
        _read(value or {}, path, part, violations)


def _set(value: Any, path: str, field: FieldDescriptor,
         target: tuple[Message, list[Violation]]) -> None:
    """Sets a scalar field, or adds to a list of scalars."""
    message, violations = target
    wanted, read = _scalar(value, field)
    named: Any = message.DESCRIPTOR.fields_by_name.get(field.name + _NAME)
    if read is None and named is not None and field.enum_type is not None:
        field, read = named, _text(value) or None
    try:
        if read is not None and _is_list(field):
            getattr(message, field.name).append(read)
        elif read is not None:
            setattr(message, field.name, read)
    except ValueError:  # Out of the type's range.
        read = None
    if read is None:
        violations.append(Violation(path, f"wanted {wanted}, found {_found(value)}"))


def _scalar(value: Any, field: FieldDescriptor) -> tuple[str, Any]:
    """Returns a text that says which values are legal, and the value for the field or None."""
    if field.enum_type is not None:
        names = [v.name for v in field.enum_type.values]
        short = [name.removeprefix(_prefix(field.enum_type)) for name in names[1:]]
        known = dict(zip(names[1:] + short + names[:1], names[1:] * 2 + names[:1]))
        name = known.get(value) if isinstance(value, str) else None
        number = None if name is None else field.enum_type.values_by_name[name].number
        return f"one of {', '.join(short)}", number
    if field.cpp_type in _INTEGERS:
        signed = field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
        return "a whole number" if signed else "a whole number of at least 0", _integer(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return "a finite number", _real(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return "true or false", {"True": True, "False": False, "true": True, "false": False}.get(
            value if isinstance(value, str) else str(value) if isinstance(value, bool) else "")
    return "text", _text(value)


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+", value):
        return int(value)
    # "1e3" is 1000. Beyond 2^53 a float does not say which whole number is meant.
    real = _real(value)
    exact = real is not None and abs(real) <= _LARGEST_EXACT and real.is_integer()
    return int(real) if real is not None and exact else None


def _real(value: Any) -> float | None:
    if isinstance(value, str):
        value = float(value) if _NUMBER.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    return float(value) if math.isfinite(value) else None


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    return value if isinstance(value, str) else None


def _found(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "nothing" if value is None else repr(value)
