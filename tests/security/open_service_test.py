"""Does what docs/access.md says, with the programs that users have: a controller that is opened to a network, a login,
a worker that joins, pages for Prometheus, and what to do when something is lost."""
import json
import shutil
import socket
import ssl
import subprocess
import unittest
import urllib.request
from datetime import datetime, timedelta

from real_service import BIN, RealService, until


class OpenService(RealService):
    def test_a_cluster_is_opened_and_trains(self):
        ready = self.begin()
        self.assertIn("trainyard login", self.trainyard("list", home="nobody", fails=True))
        joiner = self.trainyard("token", "create", "rack", "--role", "joiner")
        # A joiner's token holds for an hour, whoever makes it.
        self.tool("token", "--name", "owners", "--role", "joiner")
        until(lambda: len([g for g in self.lines("token", "list") if g["role"] == "ROLE_JOINER"]) == 2, "the owner's token")
        for grant in self.lines("token", "list"):
            held = datetime.fromisoformat(grant["expire_time"]) - datetime.fromisoformat(grant["create_time"])
            self.assertEqual(held, timedelta(hours=1) if grant["role"] == "ROLE_JOINER" else timedelta(days=90))
        (self.directory / "rack.token").write_text(joiner)
        worker, at = self.start_worker("w1", "--join", "rack.token")
        job = self.submit(20)
        self.assertIn("SUCCEEDED", self.trainyard("watch", job))
        # It comes back without the token.
        worker.terminate()
        worker.wait()
        (self.directory / "rack.token").unlink()
        _, again = self.start_worker("w1", "--join", "rack.token")
        self.assertEqual(again["worker"], at["worker"])
        # The pages, as Prometheus reads them.
        self.tool("reader", "--name", "prometheus", "--directory", "prom")
        reader = ssl.create_default_context(cafile=self.directory / "prom/authority.pem")
        reader.load_cert_chain(self.directory / "prom/certificate.pem", self.directory / "prom/key.pem")
        pages = {ready["metrics"]: None, again["metrics"]: "worker.trainyard"}
        for url, name in pages.items():
            reader.check_hostname = name is None
            with urllib.request.urlopen(url.replace("0.0.0.0", "127.0.0.1"), context=reader, timeout=20) as page:
                self.assertIn("trainyard_", page.read().decode())
            stranger = ssl.create_default_context(cafile=self.directory / "prom/authority.pem")
            stranger.check_hostname = False
            with self.assertRaises(OSError) as refused:
                urllib.request.urlopen(url.replace("0.0.0.0", "127.0.0.1"), context=stranger, timeout=20)
            # The controller lets people connect, for the page beside the metrics.
            self.assertEqual(getattr(refused.exception, "code", None), 403 if name is None else None)
        # Bob submits, and says nothing of tokens.
        bob = self.trainyard("token", "create", "bob")
        self.assertIn("bob: submitter of default", self.trainyard("login", self.address, stdin=bob, home="bob"))
        self.assertIn("wants the role admin", self.trainyard("token", "list", home="bob", fails=True))
        secrets = [text.split()[0] for text in (joiner, bob)]
        for file in self.directory.glob("*.log"):
            self.assertFalse([secret for secret in secrets if secret in file.read_text()], file)
        for file in (self.directory / "c").rglob("*"):
            if file.is_file():
                self.assertFalse([secret for secret in secrets if secret.encode() in file.read_bytes()], file)

    def test_a_certificate_of_the_users_own_proves_the_controller(self):
        self.tool("init", "--host", "elsewhere.example.org")
        admin = self.tool("token", "--name", "alice", "--role", "admin")
        (self.directory / "names").write_text("subjectAltName=IP:127.0.0.1")
        for words in ("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=ours -days 9",
                      "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tls.key -out tls.csr -subj /CN=x",
                      "x509 -req -in tls.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out tls.crt -days 9 -extfile names"):
            subprocess.run(["openssl", *words.split()], cwd=self.directory, check=True, capture_output=True)
        self.start_controller("--tls-key", "tls.key", "--tls-certificate", "tls.crt")
        self.assertIn("no certificate with the fingerprint", self.trainyard("login", self.address, stdin=admin, fails=True))
        self.assertIn("alice: admin", self.trainyard("login", self.address, "--authority", "ca.pem", stdin=admin))
        (self.directory / "rack.token").write_text(self.trainyard("token", "create", "rack", "--role", "joiner"))
        self.start_worker("w1", "--join", "rack.token", "--authority", "ca.pem")
        self.assertEqual([w["state"] for w in self.lines("workers")], ["WORKER_STATE_READY"])

    def test_a_worker_that_is_revoked_is_lost_at_once_and_its_job_goes_on_elsewhere(self):
        self.begin()
        (self.directory / "rack.token").write_text(self.trainyard("token", "create", "rack", "--role", "joiner", "--uses", "2"))
        self.start_worker("w1", "--join", "rack.token")
        job = self.submit(100_000)
        held = until(lambda: [w["id"] for w in self.lines("workers") if w["devices"][0].get("job_id") == job], "the job's start")[0]
        self.start_worker("w2", "--join", "rack.token")
        grant = [g["id"] for g in self.lines("token", "list") if g.get("worker_id") == held]
        self.trainyard("token", "revoke", grant[0])
        # Ten minutes, if it only were away.
        until(lambda: [w for w in self.lines("workers") if w["id"] != held and w["devices"][0].get("job_id") == job], "its recovery", 30)
        self.assertEqual([w["state"] for w in self.lines("workers") if w["id"] == held], ["WORKER_STATE_LOST"])
        self.trainyard("cancel", job)

    # Bug it must catch: as long as its old certificate is valid, a month, a worker that was revoked shows that, and no token helps.
    def test_a_worker_that_was_revoked_comes_back_by_another_token_and_not_by_the_same(self):
        self.begin()
        joined = self.directory / "rack.token"
        joined.write_text(self.trainyard("token", "create", "rack", "--role", "joiner", "--uses", "9"))
        worker, at = self.start_worker("w1", "--join", "rack.token")
        grant = [g["id"] for g in self.lines("token", "list") if g.get("worker_id") == at["worker"]]
        self.trainyard("token", "revoke", grant[0])
        log = self.directory / "w1.log"
        until(lambda: log.read_text().count("controller_lost") and "revoked" in log.read_text(), "the refusal")
        state = lambda: [w["state"] for w in self.lines("workers") if w["id"] == at["worker"]]
        # While it runs, and the file is replaced.
        (self.directory / "new").write_text(self.trainyard("token", "create", "again", "--role", "joiner"))
        self.assertNotIn("WORKER_STATE_READY", state(), "it is not back by the token that it has joined with")
        (self.directory / "new").rename(joined)
        until(lambda: state() == ["WORKER_STATE_READY"], "its return", 30)
        # When it starts.
        worker.terminate()
        worker.wait()
        grants = [g["id"] for g in self.lines("token", "list") if g.get("worker_id") == at["worker"]]
        self.trainyard("token", "revoke", grants[-1])
        (self.directory / "third").write_text(self.trainyard("token", "create", "third", "--role", "joiner"))
        _, again = self.start_worker("w1", "--join", "third")
        self.assertEqual(again["worker"], at["worker"])
        self.assertEqual(state(), ["WORKER_STATE_READY"])
        # When it died between the two files of a join.
        (self.directory / "w2/controller").mkdir(parents=True, mode=0o700)
        for name in ("key.pem", "certificate.pem"):
            shutil.copy(self.directory / "w1/controller" / name, self.directory / "w2/controller" / name)
        (self.directory / "fourth").write_text(self.trainyard("token", "create", "fourth", "--role", "joiner"))
        self.start_worker("w2", "--join", "fourth")
        self.assertIn(b"BEGIN CERTIFICATE", (self.directory / "w2/controller/authority.pem").read_bytes())

    def test_who_has_lost_all_tokens_gets_in_by_the_state_directory(self):
        self.begin()
        mine = self.lines("token", "list")[0]["id"]
        self.trainyard("token", "revoke", mine)
        self.assertIn("trainyard login", self.trainyard("whoami", fails=True))
        token = self.tool("token", "--name", "alice", "--role", "admin")
        until(lambda: subprocess.run([BIN / "trainyard", "login", self.address], input=token, text=True, capture_output=True, check=False,
                                     env={"HOME": str(self.directory / "home")}).returncode == 0, "the new token", 20)
        self.assertIn("alice: admin", self.trainyard("whoami"))

    def test_a_login_may_come_before_the_controller_answers(self):
        self.tool("init", "--host", "127.0.0.1")
        admin = self.tool("token", "--name", "alice", "--role", "admin")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        login = subprocess.Popen([BIN / "trainyard", "login", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, env={"HOME": str(self.directory / "home")})
        login.stdin.write(admin)
        login.stdin.close()
        self.assertIn(f"cannot reach the controller at {address}: Connection refused; trying again", login.stderr.readline())
        self.start("controller", "trainyard-controller", "--state", "c", "--listen", address.replace("127.0.0.1", "0.0.0.0"),
                   "--metrics-listen", "127.0.0.1:0")
        self.assertIn("alice: admin", login.stdout.read())
        self.assertEqual(login.wait(), 0)
        login.stdout.close()
        login.stderr.close()

    def test_a_token_for_joining_is_no_login(self):
        self.begin()
        joiner = self.trainyard("token", "create", "rack", "--role", "joiner")
        said = self.trainyard("login", self.address, stdin=joiner, home="second", fails=True)
        self.assertIn("a token of the role joiner is for 'trainyard-worker --join FILE'", said)

    def test_an_invitation_of_another_cluster_is_shown_to_nobody(self):
        self.begin()
        other = self.directory / "other"
        other.mkdir()
        subprocess.run([BIN / "trainyard-controller", "--state", other, "init", "--host", "127.0.0.1"], check=True, stdout=subprocess.DEVNULL)
        token = subprocess.run([BIN / "trainyard-controller", "--state", other, "token", "--name", "eve"], check=True, capture_output=True,
                               text=True).stdout
        said = self.trainyard("login", self.address, stdin=token, home="eve", fails=True)
        self.assertIn("shows no certificate with the fingerprint", said)
        self.assertIn("the fingerprint that 'trainyard token create' printed",
                      self.trainyard("login", f"10.0.0.1:{self.port}", stdin=token.split()[0], home="eve", fails=True))


if __name__ == "__main__":
    unittest.main()
