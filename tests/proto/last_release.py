"""Whether today's messages and methods and those of the last release understand each other.

    last_release.py PROTO_DIRECTORY                 compares with PROTO_DIRECTORY/last_release.txt
    last_release.py PROTO_DIRECTORY --describe      prints what that file says after the next release

The file has one line for each thing that travels: a field, a value of an enum, a method, a number that is reserved.
Whatever is new is free. What the file says must stay as it is; a field or a value may go if its number is reserved from
then on, and a field that was always there may become one that can be absent. 'scripts/upgrade.sh --record' writes the
file anew."""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

NAME = "last_release.txt"
RESERVED = "reserved"


def parse_text(lines):
    """Protobuf's text format: name -> list of values, each a string or another such dictionary."""
    found = {}
    for line in map(str.strip, lines):
        if line == "}":
            return found
        if line.endswith("{"):
            found.setdefault(line[:-1].strip(), []).append(parse_text(lines))
        else:
            name, value = line.split(": ", 1)
            found.setdefault(name, []).append(value.strip('"'))
    return found


def files_of(directory: pathlib.Path):
    """What the compiler that builds them says of all .proto files below the directory."""
    protos = sorted(path.relative_to(directory) for path in directory.rglob("*.proto"))
    with tempfile.NamedTemporaryFile() as described:
        subprocess.run(["protoc", f"--proto_path={directory}", f"--descriptor_set_out={described.name}", *protos], check=True)
        decoded = subprocess.run(["protoc", "--decode=google.protobuf.FileDescriptorSet", "google/protobuf/descriptor.proto"],
                                 stdin=described, capture_output=True, text=True, check=True)
    return parse_text(iter(decoded.stdout.splitlines()))["file"]


def one(table, name, otherwise=""):
    return table.get(name, [otherwise])[0]


def describe_field(field, oneofs):
    type_name = one(field, "type_name").removeprefix(".") or one(field, "type").removeprefix("TYPE_").lower()
    repeated = "repeated " if one(field, "label") == "LABEL_REPEATED" else ""
    within = ""
    if one(field, "proto3_optional") == "true":
        within = " optional"
    elif "oneof_index" in field:
        within = f" oneof {one(oneofs[int(one(field, 'oneof_index'))], 'name')}"
    return f"{repeated}{type_name} {one(field, 'name')}{within}"


def describe_message(name, message, things):
    oneofs = message.get("oneof_decl", [])
    for field in message.get("field", []):
        things[f"field {name} {one(field, 'number')}"] = describe_field(field, oneofs)
    for span in message.get("reserved_range", []):
        for number in range(int(one(span, "start")), int(one(span, "end"))):  # Without the end.
            things[f"field {name} {number}"] = RESERVED
    for inner in message.get("nested_type", []):
        describe_message(f"{name}.{one(inner, 'name')}", inner, things)
    for inner in message.get("enum_type", []):
        describe_enum(f"{name}.{one(inner, 'name')}", inner, things)


def describe_enum(name, enum, things):
    for value in enum.get("value", []):
        things[f"value {name} {one(value, 'number', '0')}"] = one(value, "name")
    for span in enum.get("reserved_range", []):
        for number in range(int(one(span, "start")), int(one(span, "end")) + 1):  # With the end.
            things[f"value {name} {number}"] = RESERVED


def describe_service(name, service, things):
    for method in service.get("method", []):
        request, response = (("stream " if one(method, f"{side}_streaming") == "true" else "")
                             + one(method, kind).removeprefix(".")
                             for side, kind in (("client", "input_type"), ("server", "output_type")))
        things[f"method {name}.{one(method, 'name')}"] = f"{request} -> {response}"


def describe(directory: pathlib.Path):
    """Thing -> what it is: "field trainyard.v1.Job 1" -> "string id"."""
    things = {}
    for file in files_of(directory):
        package = one(file, "package")
        for kind, of_kind in (("message_type", describe_message), ("enum_type", describe_enum), ("service", describe_service)):
            for entry in file.get(kind, []):
                of_kind(f"{package}.{one(entry, 'name')}", entry, things)
    return things


def to_text(things):
    order = lambda thing: [int(part) if part.isdigit() else part for part in thing.split()]
    return "".join(f"{thing}: {things[thing]}\n" for thing in sorted(things, key=order))


def from_text(text):
    return dict(line.split(": ", 1) for line in text.splitlines() if line)


def methods_with(name, things):
    """The methods whose requests or answers hold this message or enum."""
    held = {name}
    while True:
        more = {thing.split()[1] for thing, what in things.items()
                if thing.startswith("field ") and held & set(what.split())} - held
        if not more:
            break
        held |= more
    return [thing.split()[1] for thing, what in things.items()
            if thing.startswith("method ") and held & set(re.split(r"[ >-]+", what))]


def harm(thing, old):
    """Whom a change of the thing would break, of the last release."""
    kind, name = thing.split()[:2]
    methods = [name] if kind == "method" else methods_with(name, old)
    callers = sorted({"workers" if ".WorkerService." in method else "command lines and other clients" for method in methods})
    names = ", ".join(method.removeprefix("trainyard.v1.") for method in methods[:4]) + (", ..." if len(methods) > 4 else "")
    if not methods:
        return "breaks what the last release has stored or attached to errors"
    return f"breaks {' and '.join(callers)} of the last release, and its controllers, in {names}"


def gains_presence(was, now):
    """Whether a field may from now on be absent. The wire stays the same: the last release reads an absent field as 0 or
    empty, and sends 0 or empty as absent. The other direction is harm: the last release would take a 0 for absent."""
    return now == f"{was} optional"


def compare(old, new):
    """What is wrong, one line each."""
    problems = []
    for thing, was in old.items():
        now = new.get(thing)
        if now == was or gains_presence(was, now) or (now == RESERVED and not thing.startswith("method ")):
            continue
        if was == RESERVED:
            problems.append(f"{thing}: the number was reserved and is {'used as ' + now if now else 'free'}; "
                            "reserve it, a peer may still send what it once was")
        elif now is None:
            how = "keep the method" if thing.startswith("method ") else "keep it, or reserve its number"
            problems.append(f"{thing}: {was} is gone, which {harm(thing, old)}; {how}")
        else:
            problems.append(f"{thing}: {was} became {now}, which {harm(thing, old)}; keep it, and add a new one beside it")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path, metavar="PROTO_DIRECTORY")
    parser.add_argument("--describe", action="store_true")
    options = parser.parse_args()
    things = describe(options.directory)
    if options.describe:
        print(to_text(things), end="")
        return
    old = from_text((options.directory / NAME).read_text())
    if not old:
        sys.exit(f"last_release: {options.directory / NAME} says nothing; 'scripts/upgrade.sh --record' writes it")
    if problems := compare(old, things):
        sys.exit("\n".join(problems))
    print(f"{len(old)} things of the last release are as they were, {len(set(things) - set(old))} are new")


if __name__ == "__main__":
    main()
