"""The rules of CONTRIBUTING.md that a program can check. A rule takes the tree and yields findings, each a line of text.

Where a rule needs an exception, the exception stands in one of the tables below, with its reason.
"""
import re
import tomllib
from pathlib import Path

MAX_COLUMNS = 100
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_KERNEL_LINES = 120     # Device kernels.
MAX_PARAMETERS = 5

# Who may include whom: the longest matching prefix of a file decides. Everybody may include himself and `common`.
MAY_INCLUDE = {
    "common": (),
    "kernels": (),
    "security": (),
    "models": ("kernels",),
    "train": ("models", "kernels"),
    "worker/channel": (),
    "worker/daemon": ("worker/channel", "worker/sandbox"),
    "worker/service": ("worker", "security", "trainyard/v1"),
    "worker/sandbox": (),
    "worker/trainer": ("worker/channel", "worker/sandbox", "train", "models", "kernels"),
    "worker": ("worker/daemon", "worker/sandbox", "worker/service", "security"),
    "controller": ("security", "train", "models", "kernels/device"),
    "controller/access": ("controller", "security", "train", "trainyard/v1"),
    "controller/page": ("controller/access", "controller/book", "controller/jobs", "controller/workers"),
    "controller/service": ("controller", "security", "train", "models", "kernels/device", "trainyard/v1"),
    "cli": ("security", "train", "models", "kernels/device", "trainyard/v1"),
}

# `try` stands where a library throws, where a DeviceError ends, and where the last who knows what the device was at puts that into one.
TRY_ALLOWED = re.compile(r"_adapter\.(cc|h)$|^worker/trainer/trainer_main\.cc$|^train/trainer/trainer\.cc$|^tests/")

BANNED = [  # (pattern, where it is allowed, what to do instead)
    (r"\bcudaDeviceSynchronize\b", r"^tests/", "wait for an event"),
    (r"\bgetenv\b", r"_main\.cc$|^tests/", "read the environment in a *_main.cc and pass the value"),
    (r"\bstd::exit\b|(?<![\w:.>])exit\(", r"_main\.cc$|^tests/", "return a Status"),
    (r"\busing namespace\b", r"^$", "name what is used"),
    (r"\babsl::Now\b",  # What people read, and gRPC, which takes deadlines by the wall clock and keeps them by the other.
     r"^common/(?:clock|log)\.cc$|^kernels/collective/collective\.cc$|^worker/trainer/rank_process\.cc$|^cli/client\.h$|^tests/",
     "wait by RealClock().Monotonic(): the wall clock jumps"),
    (r"\bstd::(?:endl|rand|shared_mutex)\b", r"^common/check\.cc$|_main\.cc$", "'\\n', common/rng.h, common/mutex.h"),
    (r"(?<![\w.>])::close\(", r"^common/file_descriptor\.h$|^controller/store/guarded_disk\.cc$|^bench/|^tests/",
     "FileDescriptor of common/file_descriptor.h, which closes once and on every path"),
    (r"\.dump\(|\b\w*[Jj]son::parse\(", r"^common/(?:python_)?json\.cc$|^security/strict_json\.cc$|^bench/|^tests/",
     "JsonText and ParseJson of common/json.h, which are compiled once"),
    (r"\bstd::(?:(?:recursive_|timed_)?mutex|lock_guard|unique_lock|scoped_lock|condition_variable(?:_any)?)\b",
     r"^common/mutex\.h$|^tests/", "common/mutex.h, whose marks scripts/sanitize.sh locks checks"),
]


PRODUCT_KERNELS = tuple(f"kernels/products/{op}.h" for op in ("matmul", "matmul_gelu", "grouped_matmul", "scaled_matmul"))

# Types that two headers define, with the reason.
TYPES_TWICE = {
    "trainyard::cpu::Rows": "an enum of products and a template of attention, which have no symbol in common and no file that includes both",
}

# Ops that need no benchmark, with the reason.
UNMEASURED = {
    "amax_history": "some numbers a tensor and step",
    "balance_bias": "a few numbers an expert",
    "clip": "a few scalars a step",
    "fill": "runs while preparing alone",
    "grid_positions": "runs while preparing alone",
    "positions": "runs while preparing alone",
    "time_embedding": "a few numbers a sample",
}


def columns(tree):
    for source in tree.sources:
        if source.path.suffix in {".md", ".json", ".yaml", ".golden", ".csv"}:
            continue
        for i, line in enumerate(source.lines, 1):
            if len(line) > MAX_COLUMNS and (source.is_code or source.path.suffix == ".proto"):
                yield f"{source.path}:{i}: {len(line)} columns; at most {MAX_COLUMNS}"


def document_columns(tree):
    """Prose ends at MAX_COLUMNS. Code blocks, table rows and what has no space to break at may be longer."""
    for source in tree.match(r"\.md$"):
        fenced = False
        for i, line in enumerate(source.lines, 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
                continue
            may_be_longer = fenced or line.startswith("    ") or line.lstrip().startswith("|")
            breakable = " " in line.strip().removeprefix("- ")
            if len(line) > MAX_COLUMNS and breakable and not may_be_longer:
                yield f"{source.path}:{i}: {len(line)} columns; at most {MAX_COLUMNS}"


def file_length(tree):
    for source in tree.sources:
        if source.is_code or source.path.suffix in {".py", ".sh", ".proto", ".cmake"}:
            if (n := len(source.lines)) > MAX_FILE_LINES:
                yield f"{source.path}: {n} lines; at most {MAX_FILE_LINES}"


def functions(tree):
    for source in tree.code:
        limit = MAX_KERNEL_LINES if source.path.suffix in {".cu", ".cuh"} else MAX_FUNCTION_LINES
        for f in source.functions:
            if f.name in {"TEST", "TEST_F", "TEST_P"}:
                continue
            if f.lines > limit:
                yield f"{source.path}:{f.line}: {f.name} has {f.lines} lines; at most {limit}"
            if f.parameters > MAX_PARAMETERS and not _under(source.path, "tests"):
                yield f"{source.path}:{f.line}: {f.name} has {f.parameters} parameters; at most {MAX_PARAMETERS}, or a struct"


def include_directions(tree):
    tops = {"common", "security", "kernels", "models", "train", "worker", "controller", "cli", "trainyard", "tests"}
    for source in tree.code:
        owner = max((p for p in MAY_INCLUDE if _under(source.path, p)), key=len, default=None)
        if owner is None:
            continue
        for line, included in source.includes:
            if included.split("/")[0] not in tops or _under(included, owner) or _under(included, "common"):
                continue
            if not any(_under(included, allowed) for allowed in MAY_INCLUDE[owner]):
                yield f"{source.path}:{line}: {owner} may not include {included}"


def folder_cycles(tree):
    """Folders whose files include each other's are one folder: neither can be read or built without the other.

    A program's main file may include everything, since nothing includes it.
    """
    owners = {p.parent for p in tree.paths}
    edges = {}  # Folder -> {folder that it includes from: where}.
    for source in tree.code:
        if _under(source.path, "tests") or str(source.path).endswith("_main.cc"):
            continue
        for line, included in source.includes:
            folder = Path(included).parent
            if folder in owners and folder != source.path.parent:
                edges.setdefault(source.path.parent, {}).setdefault(folder, f"{source.path}:{line}: includes {included}")
    for start in sorted(edges):
        way = _way(edges, start)
        if way and start == min(way):
            steps = [edges[a][b] for a, b in zip(way, way[1:] + way[:1])]
            yield f"{'; '.join(steps)}: a cycle of {', '.join(map(str, way))}"


def _way(edges, start):
    """The folders of a shortest cycle through `start`, from `start`; none: an empty list."""
    came_from = {start: None}
    queue = [start]
    for folder in queue:
        for nearer in sorted(edges.get(folder, ())):
            if nearer == start:
                way = [folder]
                while came_from[way[-1]] is not None:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if nearer not in came_from:
                came_from[nearer] = folder
                queue.append(nearer)
    return []


def generated_headers(tree):
    for source in tree.code:
        at_the_edge = re.search(r"(^|/)(service|cli|access)/|^(tests|bench|proto)/", str(source.path))
        for line, included in source.includes:
            if included.endswith(".pb.h") and not at_the_edge:
                yield f"{source.path}:{line}: generated headers belong to service/, cli/ and access/ alone"


def exceptions(tree):
    for source in tree.code:
        if not TRY_ALLOWED.search(str(source.path)):
            for line, _ in source.find(r"\btry\s*\{|\bcatch\s*\("):
                yield f"{source.path}:{line}: try/catch outside an adapter file"


def banned(tree):
    for source in tree.code:
        for pattern, allowed, instead in BANNED:
            if not re.search(allowed, str(source.path)):
                for line, text in source.find(pattern):
                    yield f"{source.path}:{line}: {text.strip('(')} is banned here: {instead}"


def mutexes_guard(tree):
    for source in tree.code:
        for line, text in source.find(r"\bMutex \w+_;"):
            name = text.split()[1].strip(";")
            if not source.find(rf"\bABSL_GUARDED_BY\({name}\)"):
                yield f"{source.path}:{line}: no member is ABSL_GUARDED_BY({name})"


def mutable_globals(tree):
    declaration = re.compile(r"^(?:static |inline |thread_local )*(?!const|using|typedef|return|extern|namespace|class|struct"
                             r"|enum|template|friend|public|private|#)[\w:]+(?:<[^()]*>)?[&* ]+\w+(?: = [^()]*|\{.*\})?;$")
    for source in tree.code:
        for i, line in enumerate(source.code.split("\n"), 1):
            if declaration.match(line) and "constexpr" not in line and "const " not in line:
                yield f"{source.path}:{i}: a mutable global: {source.lines[i - 1].strip()}"


def op_files(tree):
    for header in tree.match(r"^kernels/(?!cpu/|cuda/|device/|collective/|order/)[^/]+/[^/]+\.h$"):
        op = header.path.stem
        if not re.search(r"\bstruct \w+Args\b", header.code):
            continue
        wanted = {"implementation": r"^kernels/cpu/.*\.cc$", "test": r"^tests/kernels/.*_test\.cc$",
                  "benchmark": r"^bench/kernels/.*_bench\.cc$", "program op": r"^models/program/((ops|optimizer)/.*|product|executable)\.cc$"}
        if op in UNMEASURED:
            del wanted["benchmark"]
        for what, where in wanted.items():
            if not any(f'"{header.path}"' in s.text for s in tree.match(where)):
                yield f"{header.path}: no {what} ({where}) includes it"


def ops_apart(tree):
    """A kernel that includes every op's header is built again for each of them."""
    for source in tree.match(r"^kernels/.*\.(h|cc|cu)$"):
        for line, included in source.includes:
            if included == "kernels/ops.h" and source.path.stem != "backend":
                yield f"{source.path}:{line}: {included} is for a backend's table; include the header of the op"


# Ops describe what they multiply, and one file knows the kernels.
def products_bound_once(tree):
    for source in tree.match(r"^models/.*\.(h|cc)$"):
        for line, included in source.includes:
            if included in PRODUCT_KERNELS and str(source.path) != "models/program/product.cc":
                yield f"{source.path}:{line}: products are bound by models/program/product.cc"


# An op's enums name its operands (NamedOp in models/program/op.h).
def operands_by_name(tree):
    for source in tree.match(r"^models/.*\.(h|cc)$"):
        for line, text in source.find(r"\b(?:inputs|outputs|output_grads)(?:\[|\.at\()\d+[\])]|\b(?:in|out)\(\d+\)"):
            yield f"{source.path}:{line}: {text}: name the operand"


def tests_are_built(tree):
    for test in tree.match(r"^(tests|bench)/.*_(test|bench)\.cc$"):
        lists = [s for s in tree.sources if s.path.name == "CMakeLists.txt"
                 and (s.path.parent == test.path.parent or s.path.parent in test.path.parents)]
        globs = [s.path.parent / glob for s in lists
                 for glob in re.findall(r"GLOB \w+ CONFIGURE_DEPENDS (?:\$\{CMAKE_CURRENT_SOURCE_DIR\}/)?(\S*[*]\S*?)\)", s.text)]
        if not any(re.search(rf"\b{re.escape(test.path.stem)}\b", s.text) for s in lists) and not any(
                len(glob.parts) == len(test.path.parts) and test.path.match(str(glob)) for glob in globs):
            yield f"{test.path}: no CMakeLists.txt builds it"


def no_disabled_tests(tree):
    for source in tree.code:
        for line, text in source.find(r"\bDISABLED_\w*|\bGTEST_SKIP\b"):
            yield f"{source.path}:{line}: {text}: a disabled test is deleted"


def proto_enums(tree):
    for source in tree.match(r"\.proto$"):
        for name, body in re.findall(r"enum (\w+) \{(.*?)\}", source.text, re.S):
            prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
            first = re.search(r"^\s*(\w+) = (\d+)", body, re.M)
            if not first or first.groups() != (f"{prefix}_UNSPECIFIED", "0"):
                yield f"{source.path}: enum {name} must begin with {prefix}_UNSPECIFIED = 0"


def metric_names(tree):
    catalogue = tree.text("docs/metrics.md")
    named = set(re.findall(r"`(trainyard_\w+|grpc_server_\w+|process_\w+)`", catalogue))
    declared = set()
    for source in tree.match(r"metrics[^/]*\.(h|cc)$"):
        if _under(source.path, "tests"):
            continue
        declared |= set(re.findall(r'"(trainyard_\w+|grpc_server_\w+|process_\w+)"', source.text)) - {"trainyard_"}
        # controller/metrics.h prefixes in its three declaring helpers.
        declared |= {"trainyard_" + name for name in re.findall(r'\b(?:Count|Measure|Spread)\(\s*"(\w+)"', source.text)}
    for source in tree.match(r"^proto/trainyard/v1/step\.proto$"):  # The controller exports each number as a gauge.
        numbers = re.findall(r'(\w+) = \d+\s*\[\(number\) = \{(?:\s*metric: "(\w+)")?', source.text)
        declared |= {"trainyard_" + (metric or field) for field, metric in numbers}
    for name in sorted(declared - named):
        yield f"docs/metrics.md: {name} is exported but not in the catalogue"
    for name in sorted(named - declared):
        yield f"docs/metrics.md: {name} is in the catalogue but nothing exports it"


def folders_map(tree):
    mapped = set(re.findall(r"^\| `([\w.]+)/` ", tree.text("docs/ARCHITECTURE.md"), re.M))
    present = {p.parts[0] for p in tree.paths if len(p.parts) > 1 and not p.parts[0].startswith(".")}
    for name in sorted(present - mapped):
        yield f"docs/ARCHITECTURE.md: the map lacks {name}/"
    for name in sorted(mapped - present):
        yield f"docs/ARCHITECTURE.md: the map names {name}/, which does not exist"


def todos(tree):
    for source in tree.sources:
        if _under(source.path, "tests/tidy"):
            continue
        for i, line in enumerate(source.lines, 1):
            if re.search(r"\b(TODO|FIXME|XXX)\b(?!\(#?\d+\))", line):
                yield f"{source.path}:{i}: a TODO names its issue: TODO(12)"


def headers_once(tree):
    for source in tree.code:
        if source.path.suffix in {".h", ".cuh"} and "#pragma once" not in source.text:
            yield f"{source.path}: no #pragma once"


def opening_comment(tree):
    for source in tree.code:
        if source.path.suffix in {".h", ".cuh"} and not source.text.startswith("//"):
            yield f"{source.path}: open with a comment: what it is, and what holds"


def types_once(tree):
    """A type that two headers define in one namespace is undefined behaviour in a program with both, and two things by one name to a reader."""
    first = {}  # Qualified name -> where it is defined.
    for source in tree.match(r"\.(h|cuh)$"):
        if _under(source.path, "tests") or _under(source.path, "bench"):
            continue  # Each of their programs is linked alone.
        for line, name in _types(source.code):
            where = first.setdefault(name, f"{source.path}:{line}")
            if where != f"{source.path}:{line}" and name not in TYPES_TWICE:
                yield f"{source.path}:{line}: {name} is defined in {where}, too"


def _types(code):
    """(line, qualified name) of each type that the code defines in a named namespace itself."""
    scopes = []  # What each open brace belongs to: the name of a namespace, or None.
    statement = 0
    for m in re.finditer(r"[{};]|^#.*$", code, re.M):
        head = code[statement:m.start()]
        if m.group(0) == "{":
            namespace = re.search(r"\bnamespace ([\w:]+)\s*$", head)
            kind = re.search(r"\b(?:class|struct|union|enum(?: class)?) (\w+)(?: final)?\s*(?::[^:].*)?$", head, re.S)
            if kind and None not in scopes and "(" not in head:
                yield code.count("\n", 0, m.start()) + 1, "::".join([*scopes, kind.group(1)])
            scopes.append(namespace.group(1) if namespace else None)
        elif m.group(0) == "}" and scopes:
            scopes.pop()
        statement = m.end()


def _under(path, prefix):
    return str(path) == prefix or str(path).startswith(prefix + "/")


def mutations(tree):
    """A planted bug (scripts/mutate.py) whose text is not where it was proves nothing any more."""
    for source in tree.match(r"^tests/mutations/[^/]*\.toml$"):
        try:
            bugs = tomllib.loads(source.text)["bug"]
        except (tomllib.TOMLDecodeError, KeyError) as error:
            yield f"{source.path}: wanted [[bug]] tables, found {error}"
            continue
        for bug in bugs:
            if set(bug) != {"file", "line", "with", "tests", "harm"} or not bug["tests"]:
                yield f"{source.path}: wanted file, line, with, tests and harm, found {sorted(bug)} of {bug.get('file')}"
                continue
            count = tree.text(bug["file"]).count(bug["line"])
            if count != 1 or bug["line"] == bug["with"]:
                yield f"{source.path}: wanted once in {bug['file']}, found {count} times: {bug['line'].strip()}"


ALL = [columns, document_columns, file_length, functions, include_directions, folder_cycles, generated_headers, exceptions, banned, mutexes_guard, mutable_globals,
       op_files, ops_apart, products_bound_once, operands_by_name, tests_are_built, no_disabled_tests, proto_enums, metric_names, folders_map, todos, headers_once, opening_comment, types_once, mutations]
