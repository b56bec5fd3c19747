"""Builds the wheel.

The wheel has the package in src/, the module of the fields of a step, and the stubs that protoc
makes. The last two come from the repository's proto/. The version is the version in the repository's CMakeLists.txt. Start with build.sh.
"""
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Iterator

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[2]
# The protos that a client calls. The private stream of the workers is not in the wheel.
PROTOS = ["access", "adapters", "bounds", "cluster", "data", "error_details", "field", "job",
          "job_spec", "optimizers", "step"]

# What records.py makes of a field of v1.StepRecord, by the field's type.
KINDS = {"double": "float = math.nan", "uint64": "int = 0", "uint32": "int = 0",
         "bool": "bool = False", "repeated string": 'str = ""',
         "google.protobuf.Timestamp": "datetime | None = None",
         "repeated GeneratedText": "tuple[tuple[str, str], ...] = ()"}
STEP = '''"""The fields of a step. setup.py has made this file of proto/trainyard/v1/step.proto."""
import math
from datetime import datetime
from typing import NamedTuple


class StepFields(NamedTuple):
    """The fields of v1.StepRecord, in its order, with those of its phases as PHASE_seconds."""
'''


def version() -> str:
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"^project\(trainyard VERSION ([\d.]+)", text, re.M)[1]


def copy_protos(destination: Path) -> None:
    """Copies the protos, and gives the messages of google.rpc a package of our own.

    All Python packages of a process share one pool of message types. Two files that both define
    google.rpc.Status cannot be imported together, and googleapis-common-protos is widely used.
    """
    destination.mkdir(parents=True)
    for name in PROTOS:
        text = (ROOT / f"proto/trainyard/v1/{name}.proto").read_text(encoding="utf-8")
        text = text.replace("package google.rpc;", "package trainyard.v1.rpc;")
        (destination / f"{name}.proto").write_text(text, encoding="utf-8")


def generate(library: Path) -> None:
    plugin = shutil.which("grpc_python_plugin")
    if shutil.which("protoc") is None or plugin is None:
        raise SystemExit(
            "building the wheel takes protoc and grpc_python_plugin, of which one is missing. "
            "Install Debian's packages protobuf-compiler and protobuf-compiler-grpc")
    with tempfile.TemporaryDirectory() as temporary:
        copy_protos(Path(temporary, "trainyard/v1"))
        subprocess.run(
            ["protoc", f"--proto_path={temporary}", f"--python_out={library}",
             f"--pyi_out={library}", f"--plugin=protoc-gen-grpc_python={plugin}",
             f"--grpc_python_out={library}",
             *(f"trainyard/v1/{name}.proto" for name in PROTOS)], check=True)
    (library / "trainyard/v1/error_details_pb2_grpc.py").unlink()  # It has no service.
    for stub in (library / "trainyard/v1").glob("*_pb2.pyi"):
        stub.write_text(with_exports(stub.read_text()))
    (library / "trainyard/v1/__init__.py").write_text(
        '"""The messages and raw stubs of the API, generated from proto/trainyard/v1."""\n')


def fields(message: str, suffix: str = "") -> Iterator[str]:
    """Yields the line of StepFields for each field of a message of step.proto."""
    text = (ROOT / "proto/trainyard/v1/step.proto").read_text(encoding="utf-8")
    body = re.search(rf"^message {message} \{{\n(.*?)^\}}", text, re.M | re.S)[1]
    line = r"^  (optional )?((?:repeated )?[\w.]+) (\w+) = \d+"
    for optional, kind, name in re.findall(line, body, re.M):
        if kind == "PhaseSeconds":
            yield from fields(kind, "_seconds")
        else:  # What can be absent is NaN then.
            yield f"    {name}{suffix}: {KINDS['double' if optional else kind]}\n"


def with_exports(stub: str) -> str:
    """A stub exports what it imports from another one only where it says `as`."""
    return re.sub(r"^(from trainyard\.v1\.\w+_pb2 import )(\w+)$", r"\1\2 as \2", stub, flags=re.MULTILINE)


class BuildWithStubs(build_py):
    def run(self) -> None:
        super().run()
        generate(Path(self.build_lib))
        Path(self.build_lib, "trainyard/_step.py").write_text(STEP + "".join(fields("StepRecord")))
        shutil.copy(ROOT / "LICENSE", Path(self.build_lib, "trainyard"))


setup(version=version(), cmdclass={"build_py": BuildWithStubs})
