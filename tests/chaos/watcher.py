"""What is seen from outside while faults happen: which attempt of a job commits and runs when. History tells less: a
superseded attempt's commits are pruned, and what it trained is overwritten."""

import collections
import os
import pathlib
import re
import threading
import time

PERIOD_SECONDS = 0.1
# Of the processor, beside a later attempt. A superseded rank 0 looks for that every second and before each commit; its
# peers lose it then. What waits (for a daemon that stands still, say) or is stopped uses none.
MAY_COMMIT_SECONDS, MAY_RUN_SECONDS = 2.0, 3.0


class JobSeen:
    def __init__(self):
        self.epochs = {}                                # epoch -> when its directory was first seen
        self.commits = {}                               # (epoch, step) -> when
        self.stale_run = collections.Counter()          # (epoch, rank) -> processor seconds beside a later attempt
        self.stale_commits = {}                         # (epoch, step) -> seconds that its rank 0 had so run by then
        self.used = {}                                  # pid -> processor seconds


class Watcher:
    """Looks at the directories and processes of jobs until `stop`."""

    def __init__(self, trainers):
        self.trainers = trainers                      # A function: those that run now.
        self.jobs = collections.defaultdict(JobSeen)  # By job id.
        self.directories = {}                         # id -> path of its checkpoint directory
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def add(self, job_id, directory: pathlib.Path):
        self.directories[job_id] = directory

    def stop(self):
        self.stopping.set()
        self.thread.join()

    def run(self):
        while not self.stopping.wait(PERIOD_SECONDS):
            now = time.monotonic()
            self.look_at_processes()
            for job_id, directory in list(self.directories.items()):
                self.look_at_directory(self.jobs[job_id], directory, now)

    def look_at_processes(self):
        for trainer in self.trainers():
            seen = self.jobs[trainer.job]
            used = trainer.cpu_seconds - seen.used.get(trainer.pid, 0)
            seen.used[trainer.pid] = trainer.cpu_seconds
            if any(epoch > trainer.epoch for epoch in seen.epochs):
                seen.stale_run[trainer.epoch, trainer.rank] += used

    def look_at_directory(self, seen, directory, now):
        for epoch, step in commits(directory, seen.epochs, now):
            if (epoch, step) not in seen.commits:
                seen.commits[epoch, step] = now
                if any(later > epoch for later in seen.epochs):
                    seen.stale_commits[epoch, step] = seen.stale_run[epoch, 0]

    def newest_commit(self, job_id):
        """(epoch, step), or (0, 0)."""
        return max(self.jobs[job_id].commits, default=(0, 0))

    def problems(self, job_id):
        seen = self.jobs[job_id]
        late = {commit: ran for commit, ran in seen.stale_commits.items() if ran > MAY_COMMIT_SECONDS}
        if late:
            (epoch, step), ran = max(late.items(), key=lambda item: item[1])
            yield (f"epoch {epoch} committed step {step} after it had used {ran:.1f} s of the processor beside a later attempt "
                   f"({len(late)} such commits)")
        for (epoch, rank), ran in sorted(seen.stale_run.items()):
            if ran > MAY_RUN_SECONDS:
                yield f"rank {rank} of epoch {epoch} used {ran:.1f} s of the processor beside a later attempt"


def names(path):
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def commits(directory, epochs, now):
    """(epoch, step) of the manifests below a checkpoint directory; notes the epochs that are there."""
    for name in names(directory):
        if not (match := re.fullmatch(r"epoch-(\d+)", name)):
            continue
        epoch = int(match[1])
        epochs.setdefault(epoch, now)
        for entry in names(directory / name):
            if (match := re.fullmatch(r"step-(\d+)", entry)) and (directory / name / entry / "manifest.json").exists():
                yield epoch, int(match[1])
