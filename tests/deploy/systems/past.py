"""A cluster that was set up 40 days ago: its certificates held for 30 days, and its tokens for less."""
import os
import pathlib
import struct
import subprocess

from package import BIN, run

DAY = 24 * 3600
CLOCK_SHIM = pathlib.Path(__file__).resolve().parents[2] / "chaos/clock_shim.c"


def clock(directory, days):
    """The environment of programs for which it is so many days later than it is."""
    shim, offset = directory / "shim.so", directory / f"clock{days}"
    if not shim.exists():
        run("cc", "-shared", "-fPIC", "-O2", "-o", shim, CLOCK_SHIM, "-ldl")
    offset.write_bytes(struct.pack("q", days * DAY * 10**9))
    return {**os.environ, "LD_PRELOAD": str(shim), "CHAOS_CLOCK": str(offset)}


def _start(environment, *words):
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL, env=environment)
    line = process.stdout.readline()
    assert line.startswith("ready "), line
    return process, dict(word.split("=", 1) for word in line.split()[1:])


def joined(directory, controller, worker, *hosts):
    """Makes the state directories of a controller and of a worker that joined it, 40 days ago.
    Returns the file with the token of that time."""
    directory.mkdir()
    then = clock(directory, -40)
    owner = [BIN / "trainyard-controller", "--state", controller]
    run(*owner, "init", "--host", "127.0.0.1", *(f"--host={host}" for host in hosts), env=then)
    join = directory / "join.token"
    join.touch(0o600)
    token = run(*owner, "token", "--name", "rack", "--role", "joiner", "--uses", "8", env=then)
    join.write_text(token, encoding="utf-8")
    serving, ready = _start(then, *owner, "--listen=0.0.0.0:0", "--metrics-listen=127.0.0.1:0")
    port = ready["controller"].rpartition(":")[2]
    working, _ = _start(then, BIN / "trainyard-worker", f"--controller=127.0.0.1:{port}",
                        f"--join={join}", f"--state={worker}", f"--root={directory}",
                        "--devices=1", "--cores=1", "--metrics-listen=127.0.0.1:0")
    for process in (working, serving):
        process.terminate()
        assert process.wait(timeout=60) == 0
    return join


def authority(directory, controller):
    """Makes an authority 4000 days ago, which holds no longer."""
    run(BIN / "trainyard-controller", "--state", controller, "init", "--host", "127.0.0.1",
        env=clock(directory, -4000))
