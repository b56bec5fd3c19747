"""Reads the machine code (SASS) of kernels out of objects that nvcc built, and counts what it does.

Why SASS and not PTX: the build puts no PTX into the objects, and ptxas still joins and splits
accesses, so that only SASS shows what runs. Why no disassembler: many CUDA toolkits have none, and
cuobjdump takes half a minute for these objects. What the rules ask stands in a few bits of each
instruction. NVIDIA does not document those bits; they were found in listings of `cuobjdump -sass`
for sm_90, and disassembler_test.py compares this file with cuobjdump where there is one.
"""
import re
import struct
import subprocess
from collections import Counter
from dataclasses import dataclass

FATBIN, CUBIN = 0xBA55ED50, 2

# What the low 9 bits of an instruction mean. The next 3 say whether its operands are registers or
# constants. Instructions that touch memory lie in 0x180 to 0x1bf. The name is None where rules do
# not ask, since the instruction does not access global or local memory, or moves no row.
FIRST_OF_MEMORY, LAST_OF_MEMORY = 0x180, 0x1BF
MEMORY = {
    0x180: "LD", 0x181: "LDG", 0x183: "LDL", 0x1AE: "LDGSTS",
    0x185: "ST", 0x186: "STG", 0x187: "STL",
    0x182: None,  # LDC: constants
    0x184: None, 0x188: None, 0x18C: None,  # LDS, STS, ATOMS: shared memory
    0x189: None, 0x1A1: None,  # SHFL, MATCH: registers of other lanes
    0x18E: None,  # REDG: atomic sums of counters and checksums
    0x1A8: None, 0x192: None, 0x1AB: None, 0x18F: None,  # ATOMG, MEMBAR and their like: a kernel that fails
    0x1AF: None,  # LDGDEPBAR: waits for LDGSTS
}
# These are told by 12 bits: the same low 9 bits with other operands are other instructions.
TENSOR_CORES = {0x23C: "HMMA"}
EXIT, EXIT_CODE = "EXIT", 0x94D
BITS = {0: 8, 1: 8, 2: 16, 3: 16, 4: 32, 5: 64, 6: 128}  # Width, by bits 73 to 75.


class Unreadable(Exception):
    """The code is not laid out as this file expects."""


@dataclass
class Kernel:
    name: str      # "rope.cu RowsKernel<8, RopeBody<bf16>>": source, and name without namespaces
    does: Counter  # {"STG.128": 2, "HMMA": 1}: how often an instruction stands in the code


def instruction(low, high):
    """Name of the instruction with these two words of 64 bits; None if rules do not ask for it."""
    code = low & 0x1FF
    if FIRST_OF_MEMORY <= code <= LAST_OF_MEMORY:
        if code not in MEMORY:
            raise Unreadable(f"instruction {low & 0xfff:#x} is unknown: device_code.py needs it")
        width = BITS.get(high >> 9 & 7)
        return MEMORY[code] and f"{MEMORY[code]}.{width}"
    return EXIT if low & 0xFFF == EXIT_CODE else TENSOR_CORES.get(low & 0xFFF)


def sections(data):
    """Name and contents of each section of an ELF file."""
    if data[:5] != b"\x7fELF\x02":
        raise Unreadable("no ELF file of 64 bits")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    for name, kind, _, _, offset, length in headers:
        begin = headers[names][4] + name
        no_bits = kind == 8
        contents = b"" if no_bits else data[offset:offset + length]
        yield data[begin:data.index(b"\0", begin)].decode(), contents


def cubins(fatbins):
    """The GPU's ELF files in a section .nv_fatbin: fat binaries in a row, each with entries."""
    at = 0
    while at < len(fatbins):
        magic, _, header, size = struct.unpack_from("<IHHQ", fatbins, at)
        if magic != FATBIN:
            raise Unreadable(f"no fat binary at {at:#x} of .nv_fatbin")
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, header, size = struct.unpack_from("<HHIQ", fatbins, entry)
            if kind == CUBIN:
                yield fatbins[entry + header:entry + header + size]
            entry += header + size
        at = end + -end % 8


def demangled(names):
    run = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True,
                         check=True)
    return run.stdout.split("\n")


def plain(name):
    """A demangled name without its result, its parameters and its namespaces."""
    name = re.sub(r"\(anonymous namespace\)::|\btrainyard::|\bcuda::|^void ", "", name)
    name = re.sub(r">\s+(?=>)", ">", name)
    depth = 0
    for i, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return name[:i]
    return name


def code_of(text):
    """Counts the instructions of a kernel. Its subroutines lie behind it in the same section."""
    does = Counter(instruction(low, high) for low, high in struct.iter_unpack("<QQ", text))
    if not does.pop(EXIT, 0):
        raise Unreadable("a kernel without EXIT: its instructions are laid out otherwise")
    del does[None]
    return does


def code_of_object(data):
    """{mangled name of a kernel: what it does} for the bytes of an object that nvcc built."""
    return {section.removeprefix(".text."): code_of(text)
            for name, fatbins in sections(data) if name == ".nv_fatbin"
            for cubin in cubins(fatbins)
            for section, text in sections(cubin) if section.startswith(".text.")}


def kernels_of(data, source):
    """The kernels in the bytes of an object that was compiled from the file `source`."""
    code = code_of_object(data)
    names = demangled(code)
    return [Kernel(f"{source} {plain(name)}", does) for name, does in zip(names, code.values())]
