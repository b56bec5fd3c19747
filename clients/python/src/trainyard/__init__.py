"""Submits, watches and reads training jobs of a Trainyard controller.

    import trainyard

    with trainyard.Client() as client:
        job = client.submit("spec.yaml")
        for now in client.watch(job):
            print(now.state, now.step, now.loss)

trainyard.aio.Client is the same for asyncio.
"""
import importlib.metadata

from trainyard import aio
from trainyard._client import Client
from trainyard.errors import (
    AlreadyExists, DeadlineExceeded, Error, FailedPrecondition, InvalidArgument, InvalidSpec,
    JobCancelled, JobEnded, JobFailed, NotFound, PermissionDenied, ResourceExhausted,
    Unauthenticated, Unavailable, VersionMismatch, Violation)
from trainyard.records import (
    BestCheckpoint, Checkpoint, Event, Job, LogLine, State, Step, Worker)
from trainyard.v1.job_pb2 import JobSpec

__version__ = importlib.metadata.version("trainyard")

__all__ = [
    "AlreadyExists", "BestCheckpoint", "Checkpoint", "Client", "DeadlineExceeded", "Error", "Event",
    "FailedPrecondition", "InvalidArgument", "InvalidSpec", "Job", "JobCancelled", "JobEnded",
    "JobFailed", "JobSpec", "LogLine", "NotFound", "PermissionDenied", "ResourceExhausted", "State",
    "Step", "Unauthenticated", "Unavailable", "VersionMismatch", "Violation", "Worker", "aio"]
