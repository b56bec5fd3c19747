#!/usr/bin/env python3
"""How long a controller's answers take for others while somebody crowds it: S7, S8 and S12 of docs/reliability.md.

  bench/crowd.py [--seconds 15] [--rounds 3]

Starts a controller with TLS, and a caller with a token of its own that lists jobs 40 times a second over one connection. In each
round the caller calls alone; then beside 6,000 peers, a third of which say nothing, a third a byte a second, and a third open a
connection and make no call; then beside floods of a thousand requests of 1 MB at once; then beside a caller with 100 times the calls that
a token may make. All of it shares this machine. Needs build/bin and build/bench (scripts/build.sh), and 7,000 descriptors.
"""
import argparse
import json
import os
import resource
import socket
import ssl
import statistics
import subprocess
import tempfile
import threading
import time

from service import BUILD, TlsController

CALLS = str(BUILD / "bench/calls")
PEERS = 6000
# What a client of HTTP/2 says first: the preface, and an empty frame of settings.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


class Crowd:
    def __init__(self, controller):
        self._controller = controller
        self._one, self._other = (controller.token(name, "--role", "submitter") for name in ("one", "other"))

    def _calls(self, token, rate, seconds, *words, before=()):
        return subprocess.Popen([*before, CALLS, "--controller", self._controller.address, "--authority", self._controller.authority, "--token", token,
                                 "--rate", str(rate), "--seconds", str(seconds), *words], stdout=subprocess.PIPE, text=True)

    def one(self, seconds):
        with self._calls(self._one, 40, seconds) as calls:
            return json.loads(calls.stdout.read())

    def alone(self, seconds):
        return self.one(seconds)

    def beside_large_requests(self, seconds):
        """1,000 at once, again as soon as they are answered. To encrypt them takes a core or more, which senders on other machines
        would not take from the controller: so these have what is left of the processors."""
        over, rounds = threading.Event(), []

        def flood():
            while not over.is_set():
                with self._calls(self._other, 1e6, 0.001, "--bytes", "1000000", "--connections", "50", before=["nice", "-n", "19"]) as other:
                    rounds.append(json.loads(other.stdout.read()))

        crowd = threading.Thread(target=flood)
        crowd.start()
        answers = self.one(seconds)
        over.set()
        crowd.join()
        answers["floods"] = len(rounds)
        return answers

    def beside_many_calls(self, seconds):
        with self._calls(self._other, 5000, seconds, "--connections", "10") as other:
            answers = self.one(seconds)
            answers["other"] = json.loads(other.stdout.read())
        return answers

    def beside_slow_peers(self, seconds):
        host, port = self._controller.address.split(":")
        context = ssl.create_default_context(cafile=self._controller.authority)
        context.set_alpn_protocols(["h2"])
        over, peers = threading.Event(), []

        def keep():
            while not over.is_set():
                for i in range(len(peers), PEERS):
                    peer = socket.create_connection((host, int(port)))
                    if i % 3 == 2:
                        peer = context.wrap_socket(peer, server_hostname=host)
                        peer.sendall(PREFACE)
                    peer.setblocking(False)
                    peers.append(peer)
                for i in range(1, len(peers), 3):
                    try:
                        peers[i].send(b"\x16\x03\x01"[:1])
                    except OSError:  # It was cut off, and another takes its place.
                        peers[i].close()
                        peers[i] = socket.create_connection((host, int(port)))
                        peers[i].setblocking(False)
                over.wait(1)

        crowd = threading.Thread(target=keep)
        crowd.start()
        while len(peers) < PEERS and crowd.is_alive():
            time.sleep(0.1)
        answers = self.one(seconds)
        over.set()
        crowd.join()
        for peer in peers:
            peer.close()
        return answers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    os.umask(0o077)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        controller = TlsController(directory)
        try:
            crowd = Crowd(controller)
            found = {case: [] for case in (crowd.alone, crowd.beside_slow_peers, crowd.beside_large_requests, crowd.beside_many_calls)}
            for _ in range(arguments.rounds):
                for case, answers in found.items():
                    answers.append(case(arguments.seconds))
                    print(f"{case.__name__}: {answers[-1]}; controller {controller.megabytes():.0f} MB", flush=True)
            for case, answers in found.items():
                print(f"{case.__name__}: p50 {statistics.median(each['p50_ms'] for each in answers):.2f} ms, "
                      f"p99 {statistics.median(each['p99_ms'] for each in answers):.2f} ms (medians of {arguments.rounds})")
        finally:
            controller.kill()


if __name__ == "__main__":
    main()
