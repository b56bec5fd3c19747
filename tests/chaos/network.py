"""Machines as network namespaces, with a bridge between them. The test itself is on the bridge, too."""

import os
import pathlib
import subprocess

BRIDGE, OWN_ADDRESS = "chaos0", "10.77.0.254"


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Machine:
    def __init__(self, name, number):
        self.name, self.address, self.link = name, f"10.77.0.{number}", f"v-{name}"
        # Keeps the namespace while nothing else runs there.
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        space = pathlib.Path(f"/proc/{self.holder.pid}/ns/net")
        while os.readlink(space) == os.readlink("/proc/self/ns/net"):
            assert self.holder.poll() is None, "unshare --net ended"
        self.enter = ["nsenter", f"--net={space}"]
        ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        ip("link", "set", self.link, "master", BRIDGE, "up")
        for words in (["addr", "add", f"{self.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
                      ["link", "set", "lo", "up"]):
            subprocess.run([*self.enter, "ip", *words], check=True)

    def cut(self):
        ip("link", "set", self.link, "down")

    def join(self):
        ip("link", "set", self.link, "up")


class Network:
    def __init__(self):
        self.machines = []
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{OWN_ADDRESS}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")

    def add(self, name):
        machine = Machine(name, len(self.machines) + 1)
        self.machines.append(machine)
        return machine
