"""Runs a unit's program as systemd would, where systemd does not run: its command line, user, environment and
capabilities are read from the unit as it is installed."""
import pathlib
import re
import shlex
import subprocess


class Unit:
    def __init__(self, root: pathlib.Path, name):
        self.root, self.name = root, name
        self.text = (root / f"usr/lib/systemd/system/{name}.service").read_text(encoding="utf-8")
        self.user = self._value("User")
        self.process = None

    def _value(self, key):
        return re.search(rf"(?m)^{key}=(.*)$", self.text)[1]

    def environment(self):
        lines = (self.root / self._value("EnvironmentFile").lstrip("/")).read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines if re.match("[A-Z_]+=", line))

    def command(self):
        words = []
        for word in self._value("ExecStart").split():
            if whole := re.fullmatch(r"\$([A-Z_]+)", word):  # Systemd splits it.
                words += shlex.split(self.environment()[whole[1]])
            else:
                words.append(re.sub(r"\$\{([A-Z_]+)\}", lambda name: self.environment()[name[1]], word))
        return words

    def prepare(self):
        """What StateDirectory= asks for."""
        home = self.root / "var/lib" / self._value("StateDirectory")
        home.mkdir(mode=int(self._value("StateDirectoryMode"), 8), exist_ok=True)
        home.chmod(int(self._value("StateDirectoryMode"), 8))
        subprocess.run(["chroot", self.root, "chown", f"{self.user}:", f"/var/lib/{home.name}"], check=True)

    def start(self, log: pathlib.Path, inside=()):
        """Returns the words of the line `ready ...`."""
        self.prepare()
        kept = self._value("CapabilityBoundingSet").lower().replace("cap_", "+").split()
        # chroot needs a capability that the unit takes away, so the rest is done inside.
        bounded = ["/usr/bin/setpriv", "--no-new-privs", f"--bounding-set={','.join(['-all', *kept])}", f"--reuid={self.user}",
                   f"--regid={self.user}", "--init-groups", "--reset-env", *self.command()]
        with open(log, "a", encoding="utf-8") as errors:
            self.process = subprocess.Popen([*inside, "chroot", self.root, *bounded], stdout=subprocess.PIPE, stderr=errors, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("ready "), f"{self.name}: {line}{log.read_text(encoding='utf-8')}"
        return dict(word.split("=", 1) for word in line.split()[1:])

    def signal(self, number, seconds=30):
        self.process.send_signal(number)
        code = self.process.wait(timeout=seconds)
        assert code == 0, f"{self.name} ended with {code}"
