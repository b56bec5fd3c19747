"""What kind of failure a step had, in the order in which failures are mended."""
import re

LOST = "no device can be used"
# Each kind, and what a line of the outcome or of the output shows it by. The first that matches is
# the cause.
KINDS = [
    ("a library is missing", r"not found \(|error while loading shared libraries"),
    ("a library has the wrong version", r" \d+ is older than "),
    (LOST, r"the device died: |no CUDA|need a GPU|wanted a device of kind|NOT_INITIALIZED"),
    ("a kernel faults", r"SUMMARY: [1-9]|illegal memory access|misaligned address|"
                        r"unspecified launch failure|Invalid __\w+__ |device-side assert|"
                        r"SIGSEGV|SIGBUS"),
    ("an op differs from the CPU's", r"\d ops, first |, a CPU has |^apart: "),
    ("a number is not finite", r"is not finite|\b(?:loss|norm)\b.*\b(?:nan|inf)\b"),
    ("memory is exhausted", r"out of memory|RESOURCE_EXHAUSTED|MemoryAllocation"),
    ("a program hangs, or is slow", r"^failed: not done in "),
    ("attention is not cuDNN's", r"cudnn_attention_refused|attention_without_cudnn"),
    ("products in 8 bits are not cuBLASLt's", r"scaled_matmul_without_cublaslt"),
    ("a test fails", r"\[  FAILED  \] \w|^failed: \d+ tests"),
    ("its gate has not passed", r"no speed, because "),
]
OTHER = "another failure"
ORDER = [kind for kind, _ in KINDS] + [OTHER]
LONGEST = 160  # Characters of a line that is told.
LOOKED_AT = 2000  # Lines, of the beginning and of the end.


def of(outcome, text):
    """{"kind": what it is, "says": the line that shows it}. The outcome, which names a number or a
    limit, goes before what a program printed."""
    printed = [line[:1000].strip() for line in text.splitlines() if line.strip()]
    if len(printed) > 2 * LOOKED_AT:
        printed = printed[:LOOKED_AT] + printed[-LOOKED_AT:]
    for kind, pattern in KINDS:
        for line in (outcome, *printed):
            if re.search(pattern, line):
                return {"kind": kind, "says": line.removeprefix("failed: ")[:LONGEST]}
    only_a_code = re.match(r"failed: (?:exit|SIG)", outcome)
    told = printed[-1] if printed and only_a_code else outcome
    return {"kind": OTHER, "says": told.removeprefix("failed: ")[:LONGEST]}
