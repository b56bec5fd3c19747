"""A root directory with little more than what a bare Debian 12 with Python has, copied from this
machine's packages: glibc 2.36, which is older than that of Ubuntu 24.04. What a program wants
beyond that is missing there. NVIDIA's libraries are where CUDA's toolkit has them."""
import os
import pathlib
import re
import shutil
import subprocess

# With what these need, less what nobody reads there.
PACKAGES = ["base-files", "bash", "coreutils", "findutils", "libc-bin", "libc6", "libgcc-s1",
            "libstdc++6", "mount", "python3", "sed", "tar"]
UNREAD = re.compile(r"^/usr/(share/(doc|man|locale|info|lintian|bug|zoneinfo)|"
                    r"lib/(x86_64-linux-gnu/(gconv|perl)|locale|python3[^/]*/(test|idlelib)))")
LIKE = ["ID=debian", 'VERSION_ID="12"']


def is_possible():
    """This machine is a Debian 12, and the caller may mount and change roots."""
    release = pathlib.Path("/etc/os-release")
    like = release.read_text().splitlines() if release.exists() else []
    return os.geteuid() == 0 and all(line in like for line in LIKE)


def with_their_needs(packages):
    found, wanted = set(), list(packages)
    while wanted:
        ran = subprocess.run(["dpkg-query", "-W", "-f", "${Pre-Depends}, ${Depends}\n", *wanted],
                             capture_output=True, text=True, check=False)
        found.update(wanted)
        names = {re.split(r"[ :|(]", need.strip())[0] for need in re.split(r"[,\n]", ran.stdout)}
        installed = {name for name in names - found - {""} if
                     subprocess.run(["dpkg-query", "-L", name], capture_output=True,
                                    check=False).returncode == 0}
        wanted = sorted(installed - {"media-types"})
    return sorted(found)


def make(root):
    """Makes the root. Directories come before what is in them."""
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("dev", "etc", "proc", "tmp", "usr/local/cuda", "check"):
        (root / name).mkdir(parents=True, exist_ok=True)
    ran = subprocess.run(["dpkg-query", "-L", *with_their_needs(PACKAGES)], capture_output=True,
                         text=True, check=True)
    for name in sorted({line for line in ran.stdout.splitlines() if line.startswith("/")}):
        source = pathlib.Path(name)
        target = root / name.lstrip("/")
        if UNREAD.match(name) or target.is_symlink() or not os.path.lexists(source):
            continue
        if source.is_dir() and not source.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
        elif not target.exists() and not source.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    (root / "etc/ld.so.conf").write_text("/usr/local/cuda/lib64\n")


ENTER = """
set -e
for device in null zero urandom; do
  touch "$1/dev/$device"
  mount --bind "/dev/$device" "$1/dev/$device"
done
mount -t proc proc "$1/proc"
mount --rbind "$2" "$1/usr/local/cuda"
ldconfig -r "$1"
exec chroot "$1" /usr/bin/env -i HOME=/check PATH=/check/fake:/usr/sbin:/usr/bin \
  PYTHONPATH=/check/fake \
  bash -c "cd /check; $3"
"""


def run(root, cuda, command, seconds):
    """Runs a line of bash in the root, at /check, with nothing of this machine in its
    environment."""
    return subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER,
         "enter", root, cuda, command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False)
