#!/usr/bin/env python3
"""Checks the machine code of the CUDA kernels against rules.py. Exit status 1 if it finds anything.

  tests/cuda_code/check.py [--list] OBJECT...

OBJECT is what nvcc made of a .cu file. --list prints what each kernel does, and checks nothing.
"""
import re
import sys
from collections import Counter
from pathlib import Path

import rules
from device_code import Unreadable, kernels_of

GLOBAL = ("LDG.", "STG.", "LD.", "ST.", "LDGSTS.")
WIDE = 128


def elementwise(name, patterns):
    """The match of the pattern that lets this kernel go element by element, or None."""
    return next(filter(None, (re.fullmatch(pattern, name) for pattern in patterns)), None)


def narrow(kernel):
    return Counter({access: count for access, count in kernel.does.items()
                    if access.startswith(GLOBAL) and int(access.split(".")[1]) < WIDE})


def local(kernel):
    used = Counter()
    for access, count in kernel.does.items():
        if access.startswith(("STL.", "LDL.")):
            used[access[:3]] += count
    return used


def text_of(counts):
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def excused(what, used, excuses):
    """Finds what no exception allows, and what exceptions allow beyond what is needed.

    `used` is [(name of a kernel, {instruction: count})].
    """
    most = [Counter() for _ in excuses]
    for name, counts in used:
        mine = [i for i, excuse in enumerate(excuses) if re.fullmatch(excuse.pattern, name)]
        if not counts:
            continue
        if len(mine) != 1:
            who = "several exceptions" if mine else "no exception"
            yield f"{name}: {what}: {text_of(counts)}; rules.py has {who} for it"
            continue
        allows = excuses[mine[0]].limits()
        most[mine[0]] |= counts
        beyond = {key: count for key, count in counts.items() if count > allows.get(key, 0)}
        if beyond:
            yield (f"{name}: {what}: {text_of(beyond)}; "
                   f"rules.py allows no more than {excuses[mine[0]].allows}")
    for excuse, found in zip(excuses, most):
        for key, limit in excuse.limits().items():
            if not found[key]:
                yield f"rules.py: no kernel {excuse.pattern} needs {key} any more: remove {key}"
            elif found[key] < limit != rules.ANY:
                yield (f"rules.py: kernels {excuse.pattern} need {key}:{found[key]}, "
                       f"not {key}:{limit}")


def width_findings(kernels):
    trained = [k for k in kernels if not re.fullmatch(rules.UNTRAINED, k.name)]
    wide = [k for k in trained if not elementwise(k.name, rules.ELEMENTWISE)]
    for kernel in trained:
        match = elementwise(kernel.name, rules.ELEMENTWISE)
        if match:
            begin, end = match.span(1)
            form = re.escape(kernel.name[:begin]) + r"(\w|Pack<.*>)+" + re.escape(kernel.name[end:])
            if not any(re.fullmatch(form, k.name) for k in wide):
                yield f"{kernel.name}: goes element by element, and has no vectorised form"
    for pattern in rules.ELEMENTWISE:
        if not any(re.fullmatch(pattern, k.name) for k in trained):
            yield f"rules.py: there is no kernel {pattern} any more: remove the pattern"
    used = [(k.name, narrow(k)) for k in wide]
    yield from excused("accesses of less than 128 bits", used, rules.NARROW)


def tensor_core_findings(kernels):
    for kernel in kernels:
        promised = any(re.fullmatch(pattern, kernel.name) for pattern in rules.TENSOR_CORES)
        if promised and not kernel.does["HMMA"]:
            yield f"{kernel.name}: no instruction of the tensor cores, which rules.py promises"
        if kernel.does["HMMA"] and not promised:
            yield f"{kernel.name}: uses the tensor cores: let rules.py promise it"
    for pattern in rules.TENSOR_CORES:
        if not any(re.fullmatch(pattern, k.name) for k in kernels):
            yield f"rules.py: there is no kernel {pattern} that could use the tensor cores"


def findings(kernels):
    yield from width_findings(kernels)
    yield from tensor_core_findings(kernels)
    yield from excused("local memory", [(k.name, local(k)) for k in kernels], rules.LOCAL)


def main(args):
    listing = args[:1] == ["--list"]
    kernels = []
    for path in map(Path, args[listing:]):
        try:
            kernels += kernels_of(path.read_bytes(), path.name.removesuffix(".o"))
        except Unreadable as error:
            print(f"{path}: {error}")
            return 1
    if not kernels:
        print(f"no kernels in {len(args) - listing} objects")
        return 1
    if listing:
        print("\n".join(sorted(f"{k.name}: {text_of(k.does)}" for k in kernels)))
        return 0
    found = list(findings(kernels))
    print("\n".join(found + [f"{len(kernels)} kernels, {len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
