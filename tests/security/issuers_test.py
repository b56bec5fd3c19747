"""An organisation's JSON Web Tokens with the programs that users have: a login, a worker that joins as a pod does, and the
end of a rule. The tokens are made by the program openssl."""
import base64
import json
import os
import socket
import subprocess
import threading
import time
import unittest

from real_service import BIN, RealService, until


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuers(RealService):
    def openssl(self, *words, **more):
        return subprocess.run(["openssl", *words], cwd=self.directory, check=True, capture_output=True, **more).stdout

    def make_issuer(self, rules):
        self.openssl("genrsa", "-out", "issuer.key", "2048")
        modulus = bytes.fromhex(self.openssl("rsa", "-in", "issuer.key", "-noout", "-modulus").decode().strip().split("=")[1])
        key = {"kty": "RSA", "kid": "k1", "use": "sig", "alg": "RS256", "n": base64url(modulus), "e": "AQAB"}
        (self.directory / "corp.jwks").write_text(json.dumps({"keys": [key]}))
        self.write_rules(rules)

    def write_rules(self, rules):
        issuer = {"issuer": "https://login.example.org", "audience": "trainyard", "algorithms": ["RS256"],
                  "keys": str(self.directory / "corp.jwks"), "rules": rules}
        (self.directory / "new.yaml").write_text(json.dumps({"corp": issuer}))
        (self.directory / "new.yaml").replace(self.directory / "issuers.yaml")

    def token(self, subject, good_for=600):
        now = int(time.time())
        claims = {"iss": "https://login.example.org", "aud": "trainyard", "sub": subject, "iat": now - 700, "exp": now + good_for}
        text = base64url(json.dumps({"alg": "RS256", "kid": "k1"}).encode()) + "." + base64url(json.dumps(claims).encode())
        return text + "." + base64url(self.openssl("dgst", "-sha256", "-sign", "issuer.key", input=text.encode()))

    def open(self):
        self.tool("init", "--host", "127.0.0.1")
        self.fingerprint = self.tool("token", "--name", "alice", "--role", "admin").split()[1]
        (self.directory / "ca.pem").write_bytes((self.directory / "c/authority/authority.pem").read_bytes())
        self.make_issuer([{"claims": {"sub": "ada"}, "role": "submitter", "namespace": "research"},
                          {"claims": {"sub": ["pod", "other"]}, "role": "joiner", "hosts": socket.gethostname()}])
        self.start_controller("--issuers", "issuers.yaml")

    def assert_in_no_file(self, token):
        signature = token.rsplit(".", 1)[1]
        for file in [*self.directory.glob("*.log"), *(self.directory / "c").rglob("*"), *(self.directory / "w1").rglob("*")]:
            if file.is_file():
                self.assertNotIn(signature.encode(), file.read_bytes(), file)

    def test_people_log_in_until_their_rule_ends(self):
        self.open()
        ada = self.token("ada")
        (self.directory / "ada.jwt").write_text(ada + "\n")
        self.assertIn("the fingerprint that", self.trainyard("login", f"10.0.0.1:{self.port}", "--token-file", str(self.directory / "ada.jwt"),
                                                             fails=True))
        shown = self.trainyard("login", self.address, "--token-file", str(self.directory / "ada.jwt"), "--authority",
                               str(self.directory / "ca.pem"))
        self.assertRegex(shown, r"^corp:ada: submitter of research, until 20\d\d-")
        self.assertEqual(self.trainyard("whoami"), shown)
        # What an issuer's tool prints, and the cluster's fingerprint in the second line.
        self.assertEqual(self.trainyard("login", self.address, stdin=f"{ada}\n{self.fingerprint}\n", home="second"), shown)
        job = self.submit(9)
        self.assertEqual([(j["submitter"], j["namespace"]) for j in self.lines("list") if j["id"] == job], [("corp:ada", "research")])
        self.assertIn("corp:ada has the role submitter", self.trainyard("token", "list", fails=True))
        eve = self.trainyard("login", self.address, stdin=f"{self.token('eve')}\n{self.fingerprint}\n", home="eve", fails=True)
        self.assertIn("corp:eve has no role here", eve)
        old = self.trainyard("login", self.address, stdin=f"{self.token('ada', -100)}\n{self.fingerprint}\n", home="eve", fails=True)
        self.assertIn("it expired at", old)
        self.write_rules([{"claims": {"sub": "nobody"}, "role": "viewer"}])
        until(lambda: "corp:ada has no role here" in subprocess.run(
            [BIN / "trainyard", "list"], capture_output=True, text=True, check=False,
            env={"HOME": str(self.directory / "home"), "TRAINYARD_CONTROLLER": self.address}).stderr, "the end of the rule", 20)
        self.assert_in_no_file(ada)

    def test_a_worker_joins_by_a_token_that_others_keep_fresh(self):
        self.open()
        pod = self.token("pod")
        (self.directory / "pod.jwt").write_text(self.token("pod", -100))
        # Without --authority nothing would tell the controller from somebody else.
        alone = subprocess.run([BIN / "trainyard-worker", "--controller", self.address, "--state", "w0", "--join", "pod.jwt"],
                               cwd=self.directory, capture_output=True, text=True, check=False, timeout=60)
        self.assertNotEqual(alone.returncode, 0)
        self.assertIn("a token alone and --authority FILE", alone.stderr)

        def freshen():
            until(lambda: (self.directory / "w1.log").exists() and "it expired at" in (self.directory / "w1.log").read_text(), "a refusal")
            (self.directory / "new.jwt").write_text(pod)
            os.replace(self.directory / "new.jwt", self.directory / "pod.jwt")

        keeper = threading.Thread(target=freshen)
        keeper.start()
        # Its page on loopback: pages elsewhere need the certificate before all else.
        join = ["trainyard-worker", "--controller", self.address, "--state", "w1", "--devices", "1", "--cores", "0.5", "--metrics-listen",
                "127.0.0.1:0", "--join", "pod.jwt", "--authority", "ca.pem"]
        worker, at = self.start("w1", *join)
        keeper.join()
        self.trainyard("login", self.address, stdin=f"{self.token('ada')}\n{self.fingerprint}\n")

        def states():
            return [w["state"] for w in self.lines("workers")]

        until(lambda: states() == ["WORKER_STATE_READY"], "the worker")
        # It comes back without the token, as the worker that it was.
        worker.terminate()
        worker.wait()
        (self.directory / "pod.jwt").unlink()
        _, again = self.start("w1", *join)
        self.assertEqual(again["worker"], at["worker"])
        self.assert_in_no_file(pod)


if __name__ == "__main__":
    unittest.main()
