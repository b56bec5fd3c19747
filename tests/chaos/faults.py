"""Faults that last: what begins them, and what ends them. Each is told in the timeline."""

import pathlib
import signal
import time

import processes


def name_of(rank):
    return (f"{rank.program} of rank {rank.rank} of {rank.job}, epoch {rank.epoch}, "
            f"on {pathlib.Path(rank.state_directory).name}")


class Fault:
    """`begin` returns False where there is nothing to hit. `end` leaves everything as it would be without faults."""
    kind = ""

    def __init__(self, run, seconds=0.0, choice=0.0):
        self.run, self.cluster, self.seconds = run, run.cluster, seconds
        self.choice = choice  # In [0, 1): which of the possible targets.

    def choose(self, candidates):
        return candidates[int(self.choice * len(candidates))] if candidates else None

    def worker(self):
        return self.choose([w for w in self.cluster.workers if w.running()])

    def note(self, text):
        self.run.timeline.fault(self.kind, text)

    def end(self):
        pass


class RankKilled(Fault):
    kind = "kill -9 of a rank"
    program = "trainer"

    def begin(self):
        target = self.choose([rank for rank in self.cluster.ranks() if rank.program == self.program])
        if target is None:
            return False
        processes.kill(target.pid)
        self.note(f"kill -9 {name_of(target)}")


class SupervisorKilled(RankKilled):
    kind = "kill -9 of a supervisor"
    program = "supervisor"


class RankFrozen(Fault):
    kind = "SIGSTOP of a rank"

    def begin(self):
        self.target = self.choose(self.cluster.trainers())
        if self.target is None:
            return False
        processes.send(self.target.pid, signal.SIGSTOP)
        self.note(f"SIGSTOP {name_of(self.target)} for {self.seconds:.1f} s")

    def end(self):
        if self.target in self.cluster.trainers():
            processes.send(self.target.pid, signal.SIGCONT)
            self.run.timeline.note(f"SIGCONT {name_of(self.target)}")


class PartFault(Fault):
    """Of the controller, or of a daemon where the class says so."""
    of_daemon = False

    def find(self):
        if self.of_daemon:
            return self.worker()
        return self.cluster.controller if self.cluster.controller.running() else None


class Killed(PartFault):
    kind = "kill -9 of the controller"

    def begin(self):
        self.part = self.find()
        if self.part is None:
            return False
        self.part.kill()
        self.note(f"kill -9 {self.part.name}, away for {self.seconds:.1f} s")

    def end(self):
        self.part.start()
        self.run.timeline.note(f"start {self.part.name}")


class DaemonKilled(Killed):
    kind = "kill -9 of a daemon"
    of_daemon = True


class Frozen(PartFault):
    kind = "SIGSTOP of the controller"

    def begin(self):
        self.part = self.find()
        if self.part is None:
            return False
        self.part.process.send_signal(signal.SIGSTOP)
        self.note(f"SIGSTOP {self.part.name} for {self.seconds:.1f} s")

    def end(self):
        self.part.process.send_signal(signal.SIGCONT)
        self.run.timeline.note(f"SIGCONT {self.part.name}")


class DaemonFrozen(Frozen):
    kind = "SIGSTOP of a daemon"
    of_daemon = True


class HostLost(Fault):
    """The machine is off, with all that ran there; it starts again with the state that it had."""
    kind = "a host lost, which returns"

    def begin(self):
        self.part = self.worker()
        if self.part is None:
            return False
        self.part.lose_power()
        self.note(f"{self.part.name} loses its power for {self.seconds:.1f} s")

    def end(self):
        self.part.machine.join()
        self.part.start()
        self.run.timeline.note(f"start {self.part.name}")


class HostLostForEver(HostLost):
    """Its state directory is gone. Another machine takes its place."""
    kind = "a host lost for ever"

    def begin(self):
        if super().begin() is False:
            return False
        self.part.state.rename(self.part.state.with_suffix(".lost"))

    def end(self):
        worker = self.cluster.add_worker(self.part.devices)
        self.run.timeline.note(f"{worker.name} takes the place of {self.part.name}")


class Partition(Fault):
    kind = "a partition"

    def begin(self):
        self.part = self.worker()
        if self.part is None:
            return False
        self.part.machine.cut()
        self.note(f"the network of {self.part.name} is cut for {self.seconds:.1f} s")

    def end(self):
        self.part.machine.join()
        self.run.timeline.note(f"the network of {self.part.name} is back")


class DiskFull(Fault):
    kind = "a full disk for checkpoints"
    place = "runs/small"

    def begin(self):
        self.ballast = self.cluster.directory / self.place / "ballast"
        try:
            with open(self.ballast, "wb", buffering=0) as file:
                while file.write(bytes(1 << 16)):
                    pass
        except OSError:
            pass  # It is full.
        self.note(f"the disk of {self.place} is full for {self.seconds:.1f} s")

    def end(self):
        self.ballast.unlink()
        self.run.timeline.note(f"the disk of {self.place} has space again")


class StoreFull(DiskFull):
    kind = "a full disk for the store"
    place = "controller"


class ClockJump(PartFault):
    """Of the controller, or of a daemon with its ranks."""
    kind = "a jump of the controller's clock"

    def begin(self):
        self.part = self.find()
        if self.part is None:
            return False
        hours = [-24, -1, 1, 24][int(self.choice * 1000) % 4]
        self.part.clock.jump(3600 * hours)
        self.note(f"the wall clock of {self.part.name} jumps to {hours:+d} h for {self.seconds:.1f} s")

    def end(self):
        self.part.clock.jump(0)
        self.run.timeline.note(f"the wall clock of {self.part.name} jumps back")


class MachineClockJump(ClockJump):
    kind = "a jump of a worker's clock"
    of_daemon = True


def during(fault, sleep=time.sleep):
    """Begins a fault, lets it last, ends it."""
    assert fault.begin() is not False, f"{fault.kind}: nothing to hit"
    sleep(fault.seconds)
    fault.end()
