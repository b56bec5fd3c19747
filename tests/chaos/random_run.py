"""Random faults over jobs of several layouts. Three hands play at once, one each for the controller, the machines and the
ranks, so that faults coincide; what each plays when is drawn from the seed before the run."""

import dataclasses
import random
import time

import faults
import jobs
from cluster import wait_until
from run import Run

WORKERS = [3, 3, 2, 2, 2]  # Devices of each. The layouts need nine, so a machine can be missing.
SETTLE_SECONDS = 180       # For what was submitted to end, once there are no faults, on two busy cores.
LAST_CALL_SECONDS = 15     # Before the end of faults: nothing is submitted from then on.


@dataclasses.dataclass(frozen=True)
class Card:
    fault: type
    least: float = 0.0  # Seconds.
    most: float = 0.0


@dataclasses.dataclass(frozen=True)
class Hand:
    cards: list
    pause: tuple  # Seconds from a fault's end to the next, at least and at most.


# 6 s is the lease. An outage of 4 s is more than five save intervals.
HANDS = [
    Hand([Card(faults.Killed, 0.2, 1), Card(faults.Killed, 4, 14), Card(faults.Frozen, 8, 24),
          Card(faults.StoreFull, 3, 6), Card(faults.ClockJump, 2, 6)], (3, 6)),
    Hand([Card(faults.DaemonKilled, 0.2, 3), Card(faults.DaemonKilled, 8, 14), Card(faults.DaemonFrozen, 8, 24),
          Card(faults.HostLost, 3, 14), Card(faults.HostLostForEver, 3, 5), Card(faults.Partition, 2, 20),
          Card(faults.DiskFull, 2, 5), Card(faults.MachineClockJump, 2, 6)], (2, 5)),
    Hand([Card(faults.RankKilled), Card(faults.RankKilled), Card(faults.SupervisorKilled), Card(faults.RankFrozen, 8, 24)],
         (2, 6)),
]


@dataclasses.dataclass(frozen=True, order=True)
class Play:
    begin: float
    end: float
    fault: type = dataclasses.field(compare=False)
    choice: float = dataclasses.field(compare=False)


def plan(seconds, seed):
    """All that will be played, in order of its beginning, over before `seconds`."""
    plays = []
    dice = random.Random(seed)
    for hand in HANDS:
        now, deck = dice.uniform(1, 3), []
        while now < seconds:
            if not deck:
                deck = dice.sample(hand.cards, len(hand.cards))
            card = deck.pop()
            end = min(now + dice.uniform(card.least, card.most), seconds)
            plays.append(Play(now, end, card.fault, dice.random()))
            now = end + dice.uniform(*hand.pause)
    return sorted(plays)


def play(run, plays, last_call):
    """Plays them at their times from now on. No jobs follow others after `last_call`, in seconds."""
    begin, waiting, lasting = time.monotonic(), list(plays), []
    while waiting or lasting:
        now = time.monotonic() - begin
        if now >= last_call:
            run.driver.last_call()
        for fault in [item for item in lasting if item[0] <= now]:
            fault[1].end()
            lasting.remove(fault)
        while waiting and waiting[0].begin <= now:
            next_one = waiting.pop(0)
            fault = next_one.fault(run, next_one.end - next_one.begin, next_one.choice)
            if fault.begin() is not False and next_one.end > next_one.begin:
                lasting.append((next_one.end, fault))
        run.problems += [problem for problem in run.cluster.surprises() if problem not in run.problems]
        time.sleep(0.02)


def disturb(binaries, seconds, seed):
    print(f"seed {seed}", flush=True)
    begin = time.monotonic()
    peace = jobs.Peace(binaries).results(jobs.LAYOUTS)
    print(f"undisturbed: {', '.join(f'{kind.name} {result.seconds:.1f} s' for kind, result in peace.items())}", flush=True)
    run = Run(binaries, WORKERS)
    driver = run.drive(jobs.LAYOUTS)
    play(run, plan(seconds, seed), seconds - min(LAST_CALL_SECONDS, seconds / 2))
    driver.last_call()
    run.timeline.note("no more faults")
    try:
        wait_until(driver.all_ended, SETTLE_SECONDS, "the end of all jobs")
        all_ended = True
    except AssertionError as failure:
        run.problems.append(str(failure))
        all_ended = False
    run.stop_driving()
    problems = run.check(peace, all_ended)
    summary(run, peace, seed, begin)
    return run.tell(problems)


def summary(run, peace, seed, begin):
    print(f"seed {seed}; {time.monotonic() - begin:.0f} s in all; {len(run.submitted)} jobs: "
          + ", ".join(sorted(f"{name}" for name in {kind.name for kind in run.submitted.values()})))
    for kind, count in sorted(run.timeline.counts.items()):
        print(f"  {count} x {kind}")
    missing = {card.fault.kind for hand in HANDS for card in hand.cards} - set(run.timeline.counts)
    if missing:
        print(f"  not in this run: {', '.join(sorted(missing))}")
    driver = run.driver
    lasted = sum(ended - driver.begun[job_id] for job_id, ended in driver.ended.items())
    if lasted:
        undisturbed = sum(peace[driver.submitted[job_id]].seconds for job_id in driver.ended)
        print(f"  effective time {100 * undisturbed / lasted:.0f} % over {len(driver.ended)} jobs")
