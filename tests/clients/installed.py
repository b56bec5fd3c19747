"""The Python client as its users have it: the wheel, built and installed without the network, in a directory of its own."""
import atexit
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = ROOT / "clients/python"


def build(sources, destination):
    """The wheel of a copy of the repository's files."""
    built = subprocess.run([sources / "clients/python/build.sh", destination], env={**os.environ, "PYTHON": sys.executable},
                           capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise AssertionError(f"clients/python/build.sh failed (scripts/install_test_tools.sh installs what it takes): {built.stderr}")
    return pathlib.Path(built.stdout.strip())


def install(wheel, directory):
    """Installs it into `directory`, which is for PYTHONPATH."""
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps",
                    "--target", directory, wheel], check=True)
    return directory


_scratch = tempfile.TemporaryDirectory()
atexit.register(_scratch.cleanup)
DIRECTORY = pathlib.Path(_scratch.name)
WHEEL = build(ROOT, DIRECTORY)
PACKAGES = install(WHEEL, DIRECTORY / "packages")
sys.path.insert(0, str(PACKAGES))


def environment(**more):
    """For programs that use the client."""
    return {**os.environ, "PYTHONPATH": str(PACKAGES), **more}


def run(program, *words, cwd, **more):
    """What a Python program prints."""
    ran = subprocess.run([sys.executable, program, *words], cwd=cwd, env=environment(**more), capture_output=True, text=True,
                         check=False, timeout=120)
    if ran.returncode != 0:
        raise AssertionError(f"{program}: {ran.stdout}{ran.stderr}")
    return ran.stdout
