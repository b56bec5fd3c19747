"""Namespaces of its own for a test that cuts networks, fills disks and kills: mounts, network, processes. When the
test ends, however it ends, the kernel removes all of it, and no other process of the machine has seen any."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

INSIDE = "TRAINYARD_CHAOS_INSIDE"
TOOLS = ["unshare", "nsenter", "ip", "mount", "umount", "cc"]


def enter():
    """Returns inside of the namespaces; outside it runs this program again and exits with its code. Without the
    right to make namespaces it ends with an error: to leave partitions out in silence would be no test."""
    if os.environ.get(INSIDE) != "yes":
        if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
            sys.exit(f"chaos: wanted {', '.join(TOOLS)}, found no {', '.join(missing)}")
        namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if os.geteuid() != 0:
            namespaces += ["--user", "--map-root-user"]
        probe = subprocess.run([*namespaces, "true"], stderr=subprocess.PIPE, text=True)
        if probe.returncode != 0:
            sys.exit(f"chaos: wanted namespaces for mounts, network and processes, found: {probe.stderr.strip()}. Run "
                     "as root, or allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1)")
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test, which ends this command.
        sys.exit(subprocess.run([*namespaces, sys.executable, *sys.argv], env={**os.environ, INSIDE: "yes"}).returncode)
    run_below_an_init()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def run_below_an_init():
    """Returns in a child; this process, the namespace's first, reaps orphans as an init does: a worker's successor
    waits for the supervisors of its predecessor to be gone, and a zombie is not gone."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xff)


def mount_memory(path: pathlib.Path, megabytes: int):
    """A file system of that size at `path`."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", path], check=True)
