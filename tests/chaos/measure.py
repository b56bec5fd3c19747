#!/usr/bin/env python3
"""How well, in numbers: scripts/soak.sh says what can be asked for. Goals are those of docs/reliability.md."""

import argparse
import datetime
import random
import re
import sys
import time

import faults
import isolation
import jobs
from chaos import binaries
from cluster import wait_until
from run import Run

FAULT_EVERY_SECONDS = 60
RESTARTED_AFTER_SECONDS = 1  # As systemd's RestartSec.
EFFECTIVE_GOAL = 0.88


def percentile(values, share):
    """The smallest value that at least `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)]


def spread(values, unit=""):
    return (f"p50 {percentile(values, 0.5):.3g}{unit}, p99 {percentile(values, 0.99):.3g}{unit}, "
            f"largest {max(values):.3g}{unit} of {len(values)}")


def steps_of(run, job_id, epoch):
    """The first and the last step that rank 0 of an attempt did, by its log; None before the first."""
    for directory in run.directory.glob(f"*/ranks/{job_id}.{epoch}.0"):
        text = b"".join(log.read_bytes() for log in sorted(directory.glob("log.*"), key=lambda p: int(p.suffix[1:])))
        steps = [int(step) for step in re.findall(rb"^step (\d+)/", text, re.M)]
        if steps:
            return steps[0], steps[-1]
    return None


def lost_steps(run, job_id, epoch):
    """Steps of attempt `epoch` that the next one did again, once that has stepped."""
    before, after = steps_of(run, job_id, epoch), steps_of(run, job_id, epoch + 1)
    return before[1] - after[0] + 1 if before and after else None


def unix(timestamp):
    return datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def soak(binaries, minutes, seed):
    """R15: one kill -9 a minute of a random rank, daemon or controller."""
    kinds = [jobs.Kind("data2", 2, "zero: OPTIMIZER", steps=12000, every=100, validation=1000),
             jobs.Kind("pipeline2", 2, "pipeline: 2", steps=12000, every=100, validation=1000),
             jobs.Kind("full2", 2, "zero: FULL", steps=6000, every=50, validation=1000)]
    peace = jobs.Peace(binaries).results(kinds, one_by_one=True, fresh=True)
    for kind, result in peace.items():
        print(f"undisturbed {kind.name}: {result.seconds:.1f} s, a save every {result.seconds * kind.every / kind.steps:.2f} s")
    run, dice = Run(binaries, [1, 1], store_megabytes=64 + int(16 * minutes)), random.Random(seed)
    driver, begin, due = run.drive(kinds), time.monotonic(), FAULT_EVERY_SECONDS / 2
    while driver.open or not driver.all_ended():
        now = time.monotonic() - begin
        if now >= 60 * minutes:
            driver.last_call()
        if now >= due:
            fault = dice.choice([faults.RankKilled, faults.DaemonKilled, faults.Killed])
            fault = fault(run, RESTARTED_AFTER_SECONDS, dice.random())
            if fault.begin() is not False:
                time.sleep(RESTARTED_AFTER_SECONDS)
                fault.end()
                due += FAULT_EVERY_SECONDS
        if surprises := run.cluster.surprises():
            run.stop_driving()
            return run.tell(surprises)
        time.sleep(0.05)
    run.stop_driving()
    wall = max(driver.ended.values()) - min(driver.begun.values())
    undisturbed = [peace[kind] for kind in run.submitted.values()]
    effective = sum(result.seconds for result in undisturbed) / wall
    # The same where the machine was not equally busy all the time: the share of time in steps that were kept, against
    # that of the undisturbed runs.
    kept = sum(jobs.stepping_seconds(run.cluster.lines("steps", job_id)) for job_id in run.submitted) / wall
    by_share = kept / (sum(result.stepping for result in undisturbed) / sum(result.seconds for result in undisturbed))
    ended = [driver.jobs[job_id] for job_id in run.submitted]
    lost = [(job, steps) for job in ended for epoch in range(1, job["epoch"])
            if (steps := lost_steps(run, job["id"], epoch)) is not None]
    problems = run.check(peace)
    if min(effective, by_share) < EFFECTIVE_GOAL:
        problems.append(f"effective time {min(effective, by_share):.1%} instead of at least {EFFECTIVE_GOAL:.0%}")
    late = [(job["spec"]["name"], steps) for job, steps in lost if steps > run.submitted[job["id"]].every]
    problems += [f"{name} lost {steps} steps, more than a save interval" for name, steps in late]
    print(f"soak: seed {seed}; {wall / 60:.1f} min, {len(ended)} jobs, effective time {effective:.1%} by the undisturbed "
          f"runs' time, {by_share:.1%} by the share of time in steps that were kept, "
          f"{sum(job['restarts'] for job in ended)} restarts, digests compared: {len(ended)}")
    print("  faults: " + ", ".join(f"{count} x {kind}" for kind, count in sorted(run.timeline.counts.items())))
    if lost:
        print(f"  lost work: {spread([steps for _, steps in lost], ' steps')} restarts")
    return run.tell(problems)


def wait_for_attempt(run, job_id, epoch):
    """Until that attempt has stepped; seconds of patience are those of a hung job."""
    wait_until(lambda: steps_of(run, job_id, epoch), 60, f"the first step of epoch {epoch}")


def wait_for_save(run, job_id, epoch):
    wait_until(lambda: any(of == epoch for of, _ in list(run.watcher.jobs[job_id].commits)), 60, f"a save of epoch {epoch}")


def kills(binaries, count, seed):
    """R13: kill -9 of a random rank of eight, `count` times."""
    kind = jobs.Kind("eight", 8, "tensor: 2", steps=1_000_000, every=20, validation=0, micro=1)
    run, dice = Run(binaries, [2, 2, 2, 2]), random.Random(seed)
    job_id = run.submit(kind)
    killed, gone, lost = [], [], []
    for epoch in range(1, count + 1):
        wait_for_save(run, job_id, epoch)
        time.sleep(dice.uniform(0, 0.5))  # Anywhere between two saves.
        fault, begin = faults.RankKilled(run, choice=dice.random()), time.time()
        assert fault.begin() is not False
        wait_until(lambda: not [r for r in run.cluster.trainers() if r.epoch == epoch], 60, "the end of its peers")
        gone.append(time.time() - begin)
        killed.append(begin)
        wait_for_attempt(run, job_id, epoch + 1)
        lost.append(lost_steps(run, job_id, epoch))
    wait_for_save(run, job_id, count + 1)
    # Its records are overwritten where an attempt began at the same step again: those have no time of a first step.
    first = {}
    for record in run.cluster.lines("steps", job_id):
        first[record["epoch"]] = min(first.get(record["epoch"], float("inf")), unix(record["finish_time"]))
    exits = {}
    for event in run.cluster.lines("events", job_id):
        if event["type"] == "EVENT_TYPE_RANK_EXITED":
            exits.setdefault(event["epoch"], unix(event["time"]))
    detected = [exits[epoch] - begin for epoch, begin in enumerate(killed, 1) if epoch in exits]
    again = [first[epoch + 1] - begin for epoch, begin in enumerate(killed, 1) if epoch + 1 in first]
    print(f"R13: seed {seed}, {count} x kill -9 of one rank of eight")
    print(f"  detected after: {spread(detected, ' s')}")
    print(f"  all peers gone after: {spread(gone, ' s')}")
    print(f"  stepping again after: {spread(again, ' s')}")
    print(f"R16: lost work: {spread(lost, ' steps')}; a save every {kind.every}")
    problems = [text for failed, text in [
        (len(detected) < count, f"{len(detected)} detections of {count} kills"),
        (len(again) < 0.9 * count, f"{len(again)} times of a first step after {count} kills"),
        (percentile(detected, 0.99) > 0.5, "R13: wanted detection within 0.5 s"),
        (max(gone) > 3, "R13: wanted all peers gone within 3 s"),
        (percentile(again, 0.5) > 5 or percentile(again, 0.99) > 10, "R13: wanted steps again within 5 s (p50), 10 s (p99)"),
        (max(lost) > kind.every, f"R16: {max(lost)} steps lost, more than a save interval")] if failed]
    return end(run, job_id, problems)


def preemptions(binaries, count, seed):
    """R16: SIGTERM of the worker that runs the job, `count` times."""
    kind = jobs.Kind("moved", steps=1_000_000, every=500, validation=0)
    run, dice, lost, problems = Run(binaries, [1, 1]), random.Random(seed), [], []
    job_id = run.submit(kind)
    for epoch in range(1, count + 1):
        wait_for_attempt(run, job_id, epoch)
        time.sleep(dice.uniform(0.1, 1))
        worker = next(w for w in run.cluster.workers if w.ranks())
        problems += worker.end()
        wait_for_attempt(run, job_id, epoch + 1)
        lost.append(lost_steps(run, job_id, epoch))
        worker.start()
        wait_until(lambda: run.cluster.ready_workers() == 2, 30, "both workers")
    print(f"R16: {count} x SIGTERM of a worker: {sum(lost)} steps lost in all, with a save every {kind.every}")
    if any(lost):
        problems.append(f"R16: wanted no step lost, found {lost}")
    return end(run, job_id, problems)


def end(run, job_id, problems):
    """Of a job that has no end of its own."""
    run.cluster.trainyard("cancel", job_id)
    run.wait_for_end(job_id)
    run.watcher.stop()
    return run.tell(problems + run.cluster.end())


def main():
    parser = argparse.ArgumentParser(prog="soak.sh", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--minutes", type=float, metavar="N")
    what.add_argument("--kills", type=int, metavar="N")
    what.add_argument("--preemptions", type=int, metavar="N")
    parser.add_argument("--seed", type=int, help="of what is killed when (default: from the clock)")
    options = parser.parse_args()
    isolation.enter()
    seed = options.seed if options.seed is not None else int(time.time())
    print(f"seed {seed}", flush=True)
    measure, amount = next((of, amount) for of, amount in [
        (soak, options.minutes), (kills, options.kills), (preemptions, options.preemptions)] if amount is not None)
    sys.exit(0 if measure(binaries(), amount, seed) else 1)


if __name__ == "__main__":
    main()
