"""Proves that the Python client finds the controller and shows who calls as the command line does, and that it says what to do where it
may not in: on this machine and, with TLS, from others. Catches a token that goes out without TLS, one that others may read, a
credential that is not looked for again, and errors without advice."""
import asyncio
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import installed  # Before the client: the wheel comes from there.
import local_service

sys.path.insert(0, str(installed.ROOT / "tests/security"))
from real_service import BIN, RealService

import grpc
import trainyard
from trainyard import _calls
from trainyard._credentials import Places


def setting(**variables):
    """Within it the environment has these; None: not."""
    kept = {name: value for name, value in os.environ.items() if variables.get(name, "") is not None and not name.startswith("TRAINYARD_")}
    return mock.patch.dict(os.environ, {**kept, **{n: str(v) for n, v in variables.items() if v is not None}}, clear=True)


async def asynchronously(call, **options):
    async with trainyard.aio.Client(**options) as client:
        return await call(client)


def both_forms(call, **options):
    """What a call, such as lambda client: client.workers(), ends with: in each form the same."""
    ends = []
    try:
        with trainyard.Client(**options) as client:
            ends.append(call(client))
    except trainyard.Error as error:
        ends.append(error)
    try:
        ends.append(asyncio.run(asynchronously(call, **options)))
    except trainyard.Error as error:
        ends.append(error)
    first, second = ends
    # A worker may have been heard of between the two calls.
    texts = {re.sub(r"last_heartbeat_time=[^)]*\)", "", str(end)) for end in ends}
    assert type(first) is type(second) and len(texts) == 1, ends
    return first


def workers(client):
    return client.workers()


class Renewed(unittest.TestCase):
    def test_every_stream_takes_the_token_of_a_new_start_whoever_found_it_first(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "token")
            path.touch(mode=0o600)
            path.write_text("first\n")
            target = _calls.Target("127.0.0.1:1", Places(path, None), None)
            streams = [_calls.Attempts(target) for _ in range(3)]
            for stream in streams:
                self.assertEqual(stream.metadata(), (("authorization", "Bearer first"),))
            path.write_text("second\n")
            refused = mock.Mock(code=lambda: grpc.StatusCode.UNAUTHENTICATED, details=lambda: "who is it?")
            for stream in streams:
                self.assertEqual(stream.pause_after(refused), 0)
                self.assertEqual(stream.metadata(), (("authorization", "Bearer second"),))
            with self.assertRaises(trainyard.Unauthenticated):
                streams[0].pause_after(refused)


class OnThisMachine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(mock.patch.dict(os.environ))
        cls.service = local_service.LocalService()
        cls.addClassCleanup(lambda: cls.service.stop())
        cls.home = pathlib.Path(os.environ["XDG_CONFIG_HOME"])

    def test_without_a_token_nobody_gets_in(self):
        with setting(HOME="/nonexistent", XDG_CONFIG_HOME=None, TRAINYARD_CONTROLLER=self.service.address):
            refused = both_forms(workers)
        self.assertIsInstance(refused, trainyard.Unauthenticated)
        self.assertIn(f"run 'trainyard login {self.service.address}', or name a token with Client(token=...)", refused.message)

    def test_a_wrong_token_is_refused_and_not_repeated_in_the_message(self):
        refused = both_forms(workers, token="ty_wrong_secret")
        self.assertIsInstance(refused, trainyard.Unauthenticated)
        self.assertNotIn("secret", refused.message)

    def test_tokens_are_found_where_the_command_line_finds_them(self):
        published, = (self.home / "trainyard/loopback").iterdir()
        token = published.read_text()
        named = self.service.directory / "named.token"
        named.write_text(token + "sha256:0123\n")
        named.chmod(0o600)
        with setting(HOME="/nonexistent", XDG_CONFIG_HOME=None, TRAINYARD_CONTROLLER=self.service.address):
            for options in ({"token": token}, {"token": named}):
                self.assertEqual(len(both_forms(lambda client: client.workers(), **options)), 1)
        with setting(HOME="/nonexistent", XDG_CONFIG_HOME=None, TRAINYARD_CONTROLLER=self.service.address, TRAINYARD_TOKEN_FILE=named):
            self.assertEqual(len(both_forms(workers)), 1)
            named.chmod(0o640)
            self.assertRegex(str(both_forms(workers)), "named.token has mode 0640.*chmod 600")
            with mock.patch.dict(os.environ, KUBERNETES_SERVICE_HOST="10.0.0.1"):  # The group is the pod's own.
                self.assertEqual(len(both_forms(workers)), 1)
                named.chmod(0o660)
                self.assertRegex(str(both_forms(workers)), "named.token has mode 0660")
            named.unlink()
            self.assertIsInstance(both_forms(workers), trainyard.NotFound)
        localhost = self.service.address.replace("127.0.0.1", "localhost")
        self.assertEqual(len(both_forms(workers, address=localhost)), 1)

    def test_an_address_is_a_host_and_a_port(self):
        for address in ("localhost", "127.0.0.1:", "::1:7070", "127.0.0.1:70700", "[::1:7070", ":7070"):
            self.assertIn("wanted HOST:PORT", str(both_forms(workers, address=address)))

    def test_a_controller_that_is_gone_is_unavailable(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{unused.getsockname()[1]}"
        with trainyard.Client(address) as client:
            with self.assertRaisesRegex(trainyard.Unavailable, f"no controller answers at {address} .*'trainyard up'"):
                client.workers()

    def test_a_proxy_of_the_environment_is_not_shown_the_token(self):
        with socket.socket() as proxy:
            proxy.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{proxy.getsockname()[1]}"  # Nothing listens there.
            with mock.patch.dict(os.environ, http_proxy=url, grpc_proxy=url, no_proxy="", no_grpc_proxy=""):
                self.assertEqual(len(both_forms(workers)), 1)

    def test_a_wheel_of_another_api_version_says_so(self):
        """A real one: built from a copy of the sources in which the API is trainyard.v9."""
        copy = self.service.directory / "copy"
        for part in ("proto", "clients/python"):
            shutil.copytree(installed.ROOT / part, copy / part)
        for part in ("CMakeLists.txt", "LICENSE"):
            shutil.copy(installed.ROOT / part, copy / part)
        (copy / "proto/trainyard/v1").rename(copy / "proto/trainyard/v9")
        for path in copy.rglob("*"):
            if path.suffix in (".py", ".proto"):
                path.write_text(path.read_text().replace("trainyard.v1", "trainyard.v9").replace("trainyard/v1", "trainyard/v9"))
        program = copy / "program.py"
        program.write_text("""
import trainyard
for call in (lambda c: c.workers(), lambda c: list(c.watch("j-aaaaaaaaa0"))):
    try:
        call(trainyard.Client())
    except trainyard.VersionMismatch as error:
        print(error)
""")
        said = installed.run(program, cwd=copy, PYTHONPATH=str(installed.build(copy, copy))).splitlines()  # Python reads wheels, too.
        self.assertEqual(len(said), 2)
        for line in said:
            self.assertIn(f"what answers at {self.service.address} does not have the API trainyard.v9 of this wheel", line)


class FromOtherMachines(RealService):
    def test_a_login_opens_a_controller_with_tls_and_roles_hold(self):
        self.begin()
        with setting(HOME=self.directory / "home", TRAINYARD_CONTROLLER=self.address):
            self.assertEqual(both_forms(workers), [])
        viewer = self.directory / "viewer.token"
        viewer.write_text(self.trainyard("token", "create", "eve", "--role", "viewer"))
        authority = self.directory / "home/.config/trainyard/controllers" / self.address / "authority.pem"
        with setting(HOME=self.directory, TRAINYARD_CONTROLLER=self.address):
            refused = both_forms(lambda client: client.submit(local_service.SPEC), token=viewer, authority=authority)
            self.assertIsInstance(refused, trainyard.PermissionDenied)
            self.assertIn("eve has the role viewer", refused.message)
        # Both are found by way of the environment, too.
        with setting(HOME=self.directory, TRAINYARD_CONTROLLER=self.address, TRAINYARD_TOKEN_FILE=viewer, TRAINYARD_AUTHORITY=authority):
            self.assertEqual(both_forms(workers), [])
            grant, = (g["id"] for g in self.lines("token", "list") if g["name"] == "eve")
            self.trainyard("token", "revoke", grant)
            self.assertIsInstance(both_forms(workers), trainyard.Unauthenticated)

    def test_nothing_is_said_to_a_controller_that_is_not_proved(self):
        self.begin()
        token = (self.directory / "home/.config/trainyard/controllers" / self.address / "token").read_text()
        with setting(HOME=self.directory):
            refused = both_forms(workers, address=f"10.0.0.1:{self.port}", token=token)
            self.assertIsInstance(refused, trainyard.FailedPrecondition)
            self.assertIn(f"trainyard login 10.0.0.1:{self.port}", refused.message)
            subprocess.run([BIN / "trainyard-controller", "--state", self.directory / "other", "init", "--host", "127.0.0.1"], check=True,
                           stdout=subprocess.DEVNULL)
            other, = (self.directory / "other").rglob("authority.pem")
            # The client is patient for a shorter time than it is otherwise.
            with mock.patch("trainyard._calls._UNREACHABLE_SECONDS", 0.1), trainyard.Client(
                    self.address, token=token, authority=other) as client:
                with self.assertRaisesRegex(trainyard.Unavailable, "no controller that its authority proves .*CERTIFICATE_VERIFY_FAILED"):
                    client.workers()

    def test_a_controller_with_a_new_token_is_known_again(self):
        """On loopback each start makes another; the client looks for it."""
        self.environment = {"XDG_CONFIG_HOME": str(self.directory / "config")}
        self.start_controller(listen="127.0.0.1:0")
        with setting(XDG_CONFIG_HOME=self.directory / "config", TRAINYARD_CONTROLLER=self.address), trainyard.Client() as client:
            self.assertEqual(client.workers(), [])
            published, = (self.directory / "config/trainyard/loopback").iterdir()
            before = published.read_text()
            self.controller.send_signal(signal.SIGKILL)
            self.controller.wait()
            self.start("controller", "trainyard-controller", "--state", "c", "--listen", self.address, "--metrics-listen", "127.0.0.1:0")
            self.assertNotEqual(published.read_text(), before)
            self.assertEqual(client.workers(), [])


if __name__ == "__main__":
    unittest.main()
