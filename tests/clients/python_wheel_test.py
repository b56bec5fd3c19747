"""Proves that the wheel has what it says: types that mypy accepts, and stubs that stand beside those of others. The build is that of
clients/python/build.sh, without the network."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

import installed
import local_service


class Wheel(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)

    def program(self, text):
        path = self.directory / "program.py"
        path.write_text(text)
        return path

    def test_it_has_types_a_license_and_two_dependencies(self):
        with zipfile.ZipFile(installed.WHEEL) as wheel:
            names = wheel.namelist()
            info, = (name.split("/")[0] for name in names if name.endswith("/METADATA"))
            metadata = wheel.read(f"{info}/METADATA").decode().splitlines()
        self.assertEqual({name.split("/")[0] for name in names}, {"trainyard", info})
        self.assertLessEqual({"trainyard/py.typed", "trainyard/LICENSE", "trainyard/v1/job_pb2.pyi", "trainyard/v1/job_pb2_grpc.py"},
                             set(names))
        self.assertFalse([name for name in names if "worker_pb2" in name], "the workers' stream is private")
        needed = [line.split(": ")[1] for line in metadata if line.startswith("Requires-Dist") and "extra ==" not in line]
        self.assertEqual(needed, ["grpcio>=1.51", "protobuf>=3.20"])
        version = subprocess.run([local_service.BIN / "trainyard", "--version"], capture_output=True, text=True, check=True).stdout
        stated, = (line.split(": ")[1] for line in metadata if line.startswith("Version: "))
        self.assertIn(stated, version)

    def test_mypy_finds_nothing_in_strict_mode(self):
        examples = sorted(str(path) for path in (installed.CLIENT / "examples").glob("*.py"))
        self.assertEqual(len(examples), 3)
        checked = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--config-file", installed.CLIENT / "pyproject.toml", "--cache-dir",
             self.directory, installed.PACKAGES / "trainyard", *examples], cwd=self.directory, capture_output=True, text=True,
            env={**os.environ, "MYPYPATH": str(installed.PACKAGES)}, check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_it_stands_beside_googles_own_messages(self):
        """All packages of a process share one pool of names, and there google.rpc belongs to googleapis-common-protos."""
        program = self.program("""
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(name="google/rpc/status.proto", package="google.rpc")
for name in ("Status", "BadRequest", "RetryInfo", "ResourceInfo", "PreconditionFailure"):
    file.message_type.add(name=name)
descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
import trainyard
print(trainyard.__version__)
""")
        self.assertTrue(installed.run(program, cwd=self.directory).strip())

    def test_a_spec_of_json_is_read_without_pyyaml(self):
        program = self.program("""
import sys
sys.modules["yaml"] = None  # As if it were not there.
from trainyard import _spec
print(_spec.to_message('{"steps": 3, "data": {"synthetic": {}}}').steps)
try:
    _spec.to_message("steps: 3")
except Exception as error:
    print(error)
""")
        first, second = installed.run(program, cwd=self.directory).splitlines()
        self.assertEqual(first, "3")
        self.assertIn("To read YAML, run: pip install 'trainyard[yaml]'", second)


if __name__ == "__main__":
    unittest.main()
