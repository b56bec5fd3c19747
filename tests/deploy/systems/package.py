"""Makes the Debian package from the build, and a bare Debian 12 to install it in, both below TRAINYARD_DEPLOYED; proves
that the package is whole and that its units are good. The tests beside this file begin with what is made here."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
BUILD = pathlib.Path(os.environ["TRAINYARD_BUILD"])
SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
MADE = pathlib.Path(os.environ["TRAINYARD_DEPLOYED"])
BASE = MADE / "base"
# What a Debian 12 is installed with, less what nobody reads here.
PACKAGES = "base-files,passwd,libstdc++6,libgcc-s1,ca-certificates"
UNREAD = ["/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*", "/usr/lib/x86_64-linux-gnu/gconv/*"]


def run(*words, **more):
    ran = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)
    assert ran.returncode == 0, f"{' '.join(map(str, words))}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def package():
    [found] = (MADE / "dist").glob("trainyard_*_amd64.deb")
    return found


def make_base():
    stamp = MADE / "base.whole"
    if stamp.exists():
        return
    shutil.rmtree(BASE, ignore_errors=True)
    run("mmdebstrap", "--quiet", "--mode=root", "--variant=essential", f"--include={PACKAGES}", "--aptopt=Acquire::Languages \"none\"",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in UNREAD), "bookworm", BASE)
    stamp.touch()


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        MADE.mkdir(parents=True, exist_ok=True)
        make_base()
        shutil.rmtree(MADE / "dist", ignore_errors=True)
        run("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", MADE / "dist", cwd=BUILD)
        cls.tree = MADE / "tree"
        shutil.rmtree(cls.tree, ignore_errors=True)
        run("dpkg-deb", "--extract", package(), cls.tree)

    def test_each_program_has_a_link_and_a_manual_page(self):
        programs = sorted(path.name for path in (self.tree / "usr/lib/trainyard/bin").iterdir())
        self.assertEqual(programs, ["trainyard", "trainyard-controller", "trainyard-tokenize", "trainyard-trainer", "trainyard-worker"])
        for program in programs:
            self.assertTrue((self.tree / "usr/bin" / program).resolve().samefile(self.tree / "usr/lib/trainyard/bin" / program))
            [page] = (self.tree / "usr/share/man").glob(f"man?/{program}.?.gz")
            text = run("man", "--local-file", page, env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
            self.assertIn("--version", text, page)
            self.assertRegex(text, rf"(?s)NAME\s+{program} - ", page)

    def test_the_shell_completes_verbs(self):
        script = self.tree / "usr/share/bash-completion/completions/trainyard"
        ran = run("bash", "-c", f"source {script}; COMP_WORDS=(trainyard heal) COMP_CWORD=1; "
                  "$(complete -p trainyard | sed 's/.*-F \\([^ ]*\\).*/\\1/') trainyard heal trainyard; echo \"${COMPREPLY[@]}\"")
        self.assertEqual(ran.strip(), "health")

    def test_the_units_are_good(self):
        root = MADE / "units"  # Where the units find the targets of systemd.
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.tree, root, symlinks=True)
        shutil.copytree("/usr/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True, dirs_exist_ok=True)
        (root / "bin").symlink_to("usr/bin")
        shutil.copy("/bin/kill", root / "usr/bin/kill")
        units = ["trainyard-controller.service", "trainyard-worker.service"]
        ran = subprocess.run(["systemd-analyze", "verify", f"--root={root}", "--man=no", *units], capture_output=True, text=True, check=False)
        ours = [line for line in ran.stderr.splitlines() if "trainyard" in line]
        self.assertEqual((ran.returncode, ours), (0, []), ran.stderr)
        # The worker's exposure is explained in its unit: ranks compile code while they run, and have another user.
        for unit, most in zip(units, (25, 55)):
            ran = run("systemd-analyze", "security", "--offline=true", f"--threshold={most}", SOURCE / "deploy/systemd" / unit)
            print("figure:", re.search(r"Overall exposure level.*", ran)[0])
        shutil.rmtree(root)

    def test_options_of_the_units_exist(self):
        for name in ("controller", "worker"):
            unit = (SOURCE / f"deploy/systemd/trainyard-{name}.service").read_text(encoding="utf-8")
            told = run(self.tree / f"usr/lib/trainyard/bin/trainyard-{name}", "--help")
            for option in re.findall(r" (--[a-z-]+)", re.search("ExecStart=(.*)", unit)[1]):
                self.assertIn(option, told)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
