"""Scripted runs, one for each way in which a service can lose what it was given. A scenario takes a run, disturbs it,
and returns further problems; what must hold of every run is checked after it."""

import dataclasses
from typing import Callable

import faults
from cluster import CALL_PERIOD, wait_until
from jobs import Kind

# Long enough that what happens at its beginning is over before its end: some 15 s alone on one core.
LONG = Kind("long", steps=1500, every=20, validation=100, hidden=64, micro=1)
SHORT = Kind("short", steps=600, every=10, validation=100, hidden=64, micro=1)
PAIR = Kind("pair", 2, "zero: OPTIMIZER", steps=600, every=10, validation=100)
MANY = Kind("many", steps=5000, every=100, validation=500)
SAVES = 6  # More than five: as many as a controller may miss.


@dataclasses.dataclass(frozen=True)
class Scenario:
    proves: str
    kind: Kind
    workers: list   # Devices of each.
    disturb: Callable


def restarts(run, job_id, wanted):
    found = run.job(job_id)["restarts"]
    return [] if found == wanted else [f"{found} restarts instead of {wanted}"]


def away(run, job_id, seconds=0.0):
    """The controller goes away, and misses more saves than any bound on what is kept."""
    recorded = run.wait_for_recorded(job_id, 2)
    outage = faults.Killed(run, seconds)
    outage.begin()
    run.wait_for_commit(job_id, recorded + SAVES * run.submitted[job_id].every)
    return outage


def away_rank_killed(run, job_id):
    outage = away(run, job_id)
    faults.RankKilled(run).begin()
    wait_until(lambda: not run.cluster.ranks(), 20, "the end of the attempt")
    outage.end()
    run.wait_for_end(job_id)
    return restarts(run, job_id, 1)


def away_host_lost(run, job_id):
    outage = away(run, job_id)
    of_holder(faults.HostLostForEver(run)).begin()
    outage.end()
    run.wait_for_end(job_id)
    return restarts(run, job_id, 1)


def away_job_ends(run, job_id):
    run.wait_for_recorded(job_id, 2)
    outage = faults.Killed(run)
    outage.begin()
    run.wait_for_commit(job_id, run.submitted[job_id].steps)
    wait_until(lambda: not run.cluster.ranks(), 20, "the end of the ranks")
    outage.end()
    run.wait_for_end(job_id)
    return restarts(run, job_id, 0)


def away_nothing_else(run, job_id):
    away(run, job_id).end()
    run.wait_for_end(job_id)
    return restarts(run, job_id, 0)


def full_at_the_end(run, job_id):
    run.wait_for_recorded(job_id, 2)
    full = faults.DiskFull(run)
    full.begin()
    # What is left of the first attempt comes before them: most of a minute on two busy cores.
    wait_until(lambda: run.job(job_id)["restarts"] >= 3, 240, "attempts that find no space", CALL_PERIOD)
    full.end()
    run.wait_for_end(job_id)
    return []


def of_holder(fault):
    """Whether a fault is of the machine that runs the job: then that is its target."""
    fault.worker = lambda: next(w for w in fault.cluster.workers if w.ranks())
    return fault


def one(fault, seconds=0.0, wanted_restarts=None):
    """One fault in the middle of the job."""
    def disturb(run, job_id):
        run.wait_for_recorded(job_id, 2)
        faults.during(of_holder(fault(run, seconds)), run.wait)
        run.wait_for_end(job_id)
        return [] if wanted_restarts is None else restarts(run, job_id, wanted_restarts)
    return disturb


SCENARIOS = {  # The longest first.
    "daemon-away-long": Scenario(
        "A rank makes 5000 steps and ends while its daemon is away for 75 s: no report of it is lost.",
        MANY, [1, 1], one(faults.DaemonKilled, 75, wanted_restarts=0)),
    "away-rank-killed": Scenario(
        "A rank dies after the controller missed more than five saves: the job resumes from the directory.",
        PAIR, [2], away_rank_killed),
    "away-host-lost": Scenario(
        "A host is lost for ever, with what it had not reported, while the controller is away.",
        SHORT, [1, 1], away_host_lost),
    "away-job-ends": Scenario(
        "A job ends while the controller is away: its whole history and its checkpoints arrive.",
        PAIR, [1, 1], away_job_ends),
    "away": Scenario(
        "The controller misses more than five saves, and nothing else happens: no rank notices.",
        PAIR, [1, 1], away_nothing_else),
    "daemon-frozen-12": Scenario(
        "A daemon stands still for two leases: the job goes on elsewhere.",
        LONG, [1, 1], one(faults.DaemonFrozen, 12)),
    "daemon-frozen-24": Scenario(
        "A daemon stands still for four leases: the job goes on elsewhere.",
        LONG, [1, 1], one(faults.DaemonFrozen, 24)),
    "superseded": Scenario(
        "The rank of a daemon that stands still stops once it has a successor, and commits nothing beside that.",
        dataclasses.replace(LONG, keep=500), [1, 1], one(faults.DaemonFrozen, 24)),
    "daemon-away": Scenario(
        "A daemon is killed and started again after 10 s, beyond the lease: no rank notices.",
        LONG, [1, 1], one(faults.DaemonKilled, 10, wanted_restarts=0)),
    "partition": Scenario(
        "A machine's network is cut for 16 s: the job goes on elsewhere, and the attempt there stops.",
        LONG, [1, 1], one(faults.Partition, 16)),
    "controller-frozen": Scenario(
        "The controller stands still for two leases: no rank notices.",
        LONG, [1, 1], one(faults.Frozen, 12, wanted_restarts=0)),
    "supervisor-killed": Scenario(
        "A supervisor is killed: its rank dies with it, and the job resumes.",
        PAIR, [1, 1], one(faults.SupervisorKilled, wanted_restarts=1)),
    "disk-full": Scenario(
        "The disk for checkpoints is full for a while: training goes on, and saves succeed again.",
        # More steps than any machine makes in those seconds: the last save of all must find its room.
        dataclasses.replace(LONG, disk="small", steps=4000), [1, 1], one(faults.DiskFull, 4, wanted_restarts=0)),
    "disk-full-at-the-end": Scenario(
        "The disk for checkpoints is full at the last save, and for three attempts more: a job that may not restart goes on.",
        # Long enough that a fast machine has not ended it before the disk is full.
        dataclasses.replace(LONG, disk="small", steps=2500, max_restarts=0), [1, 1], full_at_the_end),
    "store-full": Scenario(
        "The controller's disk is full for a while: ranks go on, and what they report arrives later.",
        LONG, [1, 1], one(faults.StoreFull, 4, wanted_restarts=0)),
    "controller-clock": Scenario(
        "The controller's wall clock jumps and comes back: no rank notices.",
        PAIR, [1, 1], one(faults.ClockJump, 3, wanted_restarts=0)),
    "worker-clock": Scenario(
        "The wall clock of a machine jumps and comes back: its ranks go on.",
        PAIR, [1, 1], one(faults.MachineClockJump, 3, wanted_restarts=0)),
}
