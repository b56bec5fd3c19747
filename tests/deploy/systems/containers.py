"""Podman with a storage of its own, and the image as deploy/container/ makes it from the package."""
import pathlib
import subprocess

from package import BASE, MADE, SOURCE, package, run

STORAGE = MADE / "podman"
IMAGE, BASE_IMAGE = "localhost/trainyard:0.1.0", "localhost/debian"
# Confined as the orchestrators confine it.
CONFINED = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges", "--user=10001:10001"]


def storage_options():
    return [f"--root={STORAGE}/storage", f"--runroot={STORAGE}/run"]


def podman(*words):
    return ["podman", *storage_options(), "--cgroup-manager=cgroupfs", "--runtime=runc", "--events-backend=none", *map(str, words)]


def make_images():
    """The image and, of the same file's first stage, nothing else. Returns the image's size in bytes."""
    STORAGE.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", STORAGE)  # Its mounts and containers go with the test's namespaces.
    packed = subprocess.Popen(["tar", "--create", "--directory", BASE, "."], stdout=subprocess.PIPE)
    run(*podman("import", "--quiet", "-", BASE_IMAGE), stdin=packed.stdout)
    assert packed.wait() == 0
    build("Containerfile", IMAGE)
    return int(run(*podman("image", "inspect", IMAGE, "--format", "{{.Size}}")))


def build(file, tag):
    run("buildah", *storage_options(), "build", "--pull-never", "--isolation=chroot", "--build-arg", f"BASE={BASE_IMAGE}", "--file",
        SOURCE / "deploy/container" / file, "--tag", tag, package().parent)


def directory(path: pathlib.Path):
    """For a container to write to."""
    path.mkdir(parents=True)
    run("chown", "10001:10001", path)
    return path
