"""Secrets stay where they belong: after a session in which tokens, keys and certificates are made, used well and used wrong, none of them stands in a
log, a metrics page, the store, the audit log, an error, a program's arguments, a rank's environment or its directory."""
import pathlib
import re
import ssl
import subprocess
import unittest
import urllib.request

from real_service import BIN, RealService, until


class Secrets(RealService):
    def pages(self, urls):
        self.tool("reader", "--name", "prometheus", "--directory", "prom")
        reader = ssl.create_default_context(cafile=self.directory / "prom/authority.pem")
        reader.load_cert_chain(self.directory / "prom/certificate.pem", self.directory / "prom/key.pem")
        reader.check_hostname = False
        for url in urls:
            with urllib.request.urlopen(url.replace("0.0.0.0", "127.0.0.1"), context=reader, timeout=20) as page:
                yield url, page.read()

    @staticmethod
    def processes():
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                try:
                    yield f"{process}/{name}", (process / name).read_bytes()
                except OSError:
                    continue

    def test_secrets_are_nowhere_but_in_their_files(self):
        self.tool("init", "--host", "127.0.0.1")
        admin = self.tool("token", "--name", "alice", "--role", "admin")
        ready = self.start_controller()
        said = [self.trainyard("login", self.address, stdin=admin)]
        joiner = self.trainyard("token", "create", "rack", "--role", "joiner", "--uses", "1")
        viewer = self.trainyard("token", "create", "vera", "--role", "viewer")
        (self.directory / "rack.token").write_text(joiner)
        _, worker = self.start_worker("w", "--join", "rack.token")
        job = self.submit(100_000)
        until(lambda: [j for j in self.lines("list") if j["state"] == "JOB_STATE_RUNNING"], "the job's start")
        # Used wrong: as a viewer, twice, cut short, in the place of a name, with another controller's fingerprint.
        said.append(self.trainyard("login", self.address, stdin=viewer, home="vera"))
        said.append(self.trainyard("cancel", job, home="vera", fails=True))
        said.append(self.trainyard("login", self.address, stdin=viewer[:40], home="eve", fails=True))
        said.append(self.trainyard("login", self.address, stdin=joiner.split()[0] + "\nsha256:" + "0" * 64 + "\n", home="eve", fails=True))
        late = open(self.directory / "late.log", "w", encoding="utf-8")  # The token has no use left: the worker says so again and again.
        words = ["--controller", self.address, "--state", "w2", "--devices", "1", "--join", "rack.token"]
        refused = subprocess.Popen([BIN / "trainyard-worker", *words], cwd=self.directory, stdout=late, stderr=late)
        for undo in (late.close, refused.wait, refused.kill):
            self.addCleanup(undo)
        until(lambda: "used as often as it may be" in (self.directory / "late.log").read_text(), "the refusal")
        said += [self.trainyard("audit", "-o", "json"), self.trainyard("token", "list", "-o", "json")]
        canaries = {text.split()[0].rsplit("_", 1)[1][:30] for text in (admin, joiner, viewer)}
        keys = [file for file in self.directory.rglob("*") if file.is_file() and b"PRIVATE KEY" in file.read_bytes()]
        self.assertGreaterEqual(len(keys), 3, "of the authority, the controller and the worker")
        for file in keys:
            self.assertEqual(file.stat().st_mode & 0o077, 0, file)
            canaries.add(re.sub(r"-----.*?-----|\s", "", file.read_text())[40:80])
        belongs = {file for file in self.directory.rglob("*") if file.name in ("rack.token", "login.json") or file in keys}
        belongs |= {file for file in (self.directory / "home").rglob("*")} | {file for file in (self.directory / "vera").rglob("*")}
        places = [(f"answer {i}", text.encode()) for i, text in enumerate(said)] + list(self.pages([ready["metrics"], worker["metrics"]]))
        places += [(file, file.read_bytes()) for file in self.directory.rglob("*") if file.is_file() and file not in belongs]
        places += list(self.processes())
        self.assertGreater(len(places), 40)
        names = [str(name) for name, _ in places]
        for wanted in ("controller.log", "w.log", "store.db", "config.json", "launch.json", "/cmdline"):
            self.assertTrue([name for name in names if name.endswith(wanted)], wanted)
        for name, text in places:
            self.assertFalse([canary for canary in canaries if canary.encode() in text], f"a secret in {name}")
        self.trainyard("cancel", job)


class Proxy(RealService):
    environment = {"http_proxy": "http://127.0.0.1:1", "no_proxy": ""}  # Nobody answers there.

    def test_no_proxy_is_shown_the_token_of_loopback(self):
        self.start_controller(listen="127.0.0.1:0")
        self.assertIn("JOB", self.trainyard("list", "--token-file", "c/token"))


if __name__ == "__main__":
    unittest.main()
