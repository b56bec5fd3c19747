"""Certificates are renewed under programs that run: the clocks go on by more days than the first ones hold, as if the
machine had slept. (A clock that leaps while the machine runs is not believed at once.)"""
import pathlib
import socket
import ssl
import sys
import unittest
from urllib.parse import urlsplit

from real_service import RealService, until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "chaos"))
import wall_clock  # noqa: E402

DAY = 24 * 3600


class Renewal(RealService):
    def setUp(self):
        super().setUp()
        wall_clock.build_shim(self.directory / "shim.so")
        self.clock = wall_clock.Clock(self.directory / "clock")
        self.environment = {"LD_PRELOAD": str(self.directory / "shim.so"), "CHAOS_CLOCK": str(self.clock.path),
                            "CHAOS_CLOCK_SLEEPS": "1"}

    def shown(self, url):
        """The certificate that a metrics page shows now."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(self.directory / "prom/certificate.pem", self.directory / "prom/key.pem")
        with context.wrap_socket(socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=20)) as page:
            return page.getpeercert(binary_form=True)

    def step_of(self, job):
        return int(self.lines("get", job)[0].get("progress", {}).get("step", 0))

    def test_a_cluster_lives_longer_than_its_first_certificates(self):
        pages = [self.begin()["metrics"]]
        self.tool("reader", "--name", "prometheus", "--directory", "prom")
        (self.directory / "rack.token").write_text(self.trainyard("token", "create", "rack", "--role", "joiner"))
        worker, ready = self.start_worker("w1", "--join", "rack.token")
        pages.append(ready["metrics"])
        first = [self.shown(page) for page in pages]
        job = self.submit(1_000_000)
        until(lambda: self.step_of(job), "its first steps")

        self.clock.jump(21 * DAY)
        logs = [self.directory / f"{name}.log" for name in ("controller", "w1")]
        until(lambda: all("certificate_renewed" in log.read_text() for log in logs), "renewed certificates", 100)
        until(lambda: all(self.shown(page) != old for page, old in zip(pages, first)), "pages that show them")

        self.clock.jump(36 * DAY)  # The first ones have expired six days ago.
        step = self.step_of(job)
        until(lambda: self.step_of(job) > step, "more steps of the job that ran all the while")
        worker.terminate()
        worker.wait()
        (self.directory / "rack.token").unlink()
        _, again = self.start_worker("w1", "--join", "rack.token")
        self.assertEqual(again["worker"], ready["worker"])
        until(lambda: self.lines("get", job)[0]["state"] == "JOB_STATE_RUNNING", "the job on the worker that came back")
        self.assertNotIn("certificate_not_renewed", "".join(log.read_text() for log in logs))


if __name__ == "__main__":
    unittest.main()
