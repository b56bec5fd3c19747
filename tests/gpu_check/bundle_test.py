"""Makes the bundle for a machine with a GPU, and proves that it is whole and small enough.

What would grow it fails here: a second copy of the kernels, a program that is not stripped, a
program that no GPU needs, a bundle or a checkout above what can be sent.
"""
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TRAINYARD_BUILD"])
BUNDLE = BUILD / "trainyard-gpu.tar.xz"
MOST = 40_000_000  # Bytes.
PROGRAMS = {"bin": {"cuda_fault_test", "cuda_kernels_test", "cuda_training_test", "trainyard",
                    "trainyard-controller", "trainyard-tokenize", "trainyard-trainer",
                    "trainyard-worker"},
            "bench": {"cudnn_device", "gpu_libraries", "lockstep", "matmul_search", "predict_step",
                      "train_step"},
            "scripts": {"gpu_check", "gpu_check.sh"}}
HAS_KERNELS = {"libtrainyard_kernels_cuda.so"}


def sections(program):
    ran = subprocess.run(["readelf", "--sections", "--wide", program], capture_output=True,
                         text=True, check=True)
    return set(re.findall(r"\] (\.\S+)", ran.stdout))


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ran = subprocess.run([ROOT / "scripts/gpu_bundle.sh"], capture_output=True, text=True,
                             check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        cls.said = ran.stdout
        cls.tree = BUILD / "gpu_bundle/trainyard"

    def test_it_is_small_enough(self):
        print("figure: bundle of", BUNDLE.stat().st_size, "bytes")
        self.assertLessEqual(BUNDLE.stat().st_size, MOST)

    def test_the_script_says_what_to_run(self):
        self.assertIn("timeout -k 5 410 scripts/gpu_check.sh ", self.said)
        self.assertIn("timeout -k 5 200 scripts/gpu_check.sh --after RESULTS ", self.said)

    def test_it_has_what_a_gpu_needs_and_no_more(self):
        with tarfile.open(BUNDLE) as bundle:
            packed = {pathlib.PurePath(name).parts[1:] for name in bundle.getnames()}
        for directory, programs in PROGRAMS.items():
            found = {parts[1] for parts in packed if parts[:1] == (directory,) and len(parts) > 1}
            self.assertEqual(found, programs)

    def test_one_library_has_the_kernels_and_no_program_has_symbols(self):
        libraries = list((self.tree / "lib").glob("libtrainyard_*.so"))
        programs = [self.tree / directory / name for directory in ("bin", "bench")
                    for name in PROGRAMS[directory]]
        found = {path.name: sections(path) for path in [*programs, *libraries]}
        self.assertEqual({name for name, has in found.items() if ".nv_fatbin" in has}, HAS_KERNELS)
        self.assertEqual([name for name, has in found.items() if ".symtab" in has], [])

    def test_libraries_of_ours_are_found_beside_each_other(self):
        for library in (self.tree / "lib").glob("libtrainyard_*.so"):
            ran = subprocess.run(["readelf", "--dynamic", library], capture_output=True, text=True,
                                 check=True)
            self.assertIn("Library rpath: [$ORIGIN]", ran.stdout)


class Size(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = pathlib.Path(temporary.name)
        self.tree = self.directory / "trainyard"
        (self.tree / "bin").mkdir(parents=True)
        self.checkout = self.directory / "checkout"
        subprocess.run(["git", "init", "--quiet", self.checkout], check=True)

    def pack(self, *options):
        return subprocess.run(
            ["cmake", *options, f"-DTREE={self.tree}", f"-DBUNDLE={self.directory}/bundle.tar.xz",
             f"-DSOURCE={self.checkout}", "-P", ROOT / "cmake/PackBundle.cmake"],
            capture_output=True, text=True, check=False)

    def left(self):
        return sorted(path.name for path in self.directory.glob("bundle*"))

    def test_a_small_one_is_packed(self):
        (self.tree / "bin/program").write_bytes(b"program")
        ran = self.pack()
        self.assertEqual((ran.returncode, self.left()), (0, ["bundle.tar.xz"]), ran.stderr)

    def test_an_oversize_program_is_seen(self):
        (self.directory / "bundle.tar.xz").write_bytes(b"of yesterday")
        most = 1 << 20
        (self.tree / "bin/program").write_bytes(os.urandom(most))
        ran = self.pack(f"-DMOST={most}")
        self.assertEqual((ran.returncode, self.left()), (1, []))
        self.assertIn(f"wanted at most {most}", ran.stderr)

    def test_a_checkout_that_leaves_no_room_is_seen(self):
        for name, ignored in (("data", False), ("ignored", True)):
            with open(self.checkout / name, "wb") as file:
                file.truncate(64 << 20)
            (self.checkout / ".gitignore").write_text("ignored\n")
            ran = self.pack()
            self.assertEqual(ran.returncode, 0 if ignored else 1, ran.stderr)
            if not ignored:
                self.assertIn("wanted at most 67108864", " ".join(ran.stderr.split()))
            (self.checkout / name).unlink()


if __name__ == "__main__":
    unittest.main()
