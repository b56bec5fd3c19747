"""The named tuples that the client returns. pandas.DataFrame makes a table from them.

Each field has the same type for every job. A number that is not known, or that a model or device
does not have, is NaN. A time that has not come is None.
"""
from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, List, Literal, NamedTuple, Optional, cast

from google.protobuf.timestamp_pb2 import Timestamp

from trainyard import _spec, _step
from trainyard.v1 import cluster_pb2, job_pb2

State = Literal["QUEUED", "STARTING", "RUNNING", "RECOVERING", "STOPPING", "SUCCEEDED", "FAILED",
                "CANCELLED"]


class Checkpoint(NamedTuple):
    """An existing checkpoint of a job."""

    step: int
    epoch: int
    path: str  # The path on the workers.
    size_bytes: int
    create_time: Optional[datetime]


class BestCheckpoint(NamedTuple):
    """The checkpoint with the lowest validation loss, of those that exist."""

    step: int
    epoch: int
    validation_loss: float


class Job(NamedTuple):
    """A job as the controller had it when it answered."""

    id: str
    name: str
    state: State
    state_reason: str  # For people.
    step: int  # Finished steps. An attempt goes back to where it resumes.
    total_steps: int
    loss: float  # Of `step`, as tokens_per_second and mfu are. NaN until an attempt's first step.
    validation_loss: float
    tokens_per_second: float
    mfu: float  # 0 to 1.
    eta_seconds: float
    epoch: int  # Number of the attempt; 0 before the first.
    restarts: int
    create_time: Optional[datetime]
    start_time: Optional[datetime]
    finish_time: Optional[datetime]
    namespace: str
    submitter: str
    labels: Dict[str, str]
    checkpoints: List[Checkpoint]  # Oldest first.
    spec: Dict[str, Any]  # As it was submitted. `submit` takes it again.
    revision: int  # Grows with every change of the job.
    continued_by: str = ""  # The job that has taken over this one's run; "": none.
    best_checkpoint: Optional[BestCheckpoint] = None  # Only of jobs with checkpoint.keep_best.

    @property
    def finished(self) -> bool:
        """True once the job has succeeded, failed or been cancelled."""
        return self.state in ("SUCCEEDED", "FAILED", "CANCELLED")


class Step(_step.StepFields):
    """One optimizer step. Seconds are those of the slowest rank.

    proto/trainyard/v1/step.proto says what each field is. They have the order of the message
    StepRecord, into which a release may put new ones: read them by name. `gpu_throttle_reasons` are
    separated by commas, and `generated` has pairs of a prompt and a text.
    """

    __slots__ = ()

    def numbers(self) -> Dict[str, float]:
        """Returns the finite numbers by name, as experiment trackers want them."""
        return {name: value for name, value in self._asdict().items()
                if isinstance(value, (int, float)) and math.isfinite(value)}


class LogLine(NamedTuple):
    """A line that a rank wrote."""

    time: Optional[datetime]
    epoch: int
    rank: int
    text: str


class Event(NamedTuple):
    """Something that happened to a job."""

    time: Optional[datetime]
    type: str  # "PLACED" for EVENT_TYPE_PLACED, and so on.
    epoch: int
    message: str  # For people.


class Worker(NamedTuple):
    """A worker that the controller knows."""

    id: str
    hostname: str
    version: str
    state: str  # "READY", "LOST" or "DRAINING".
    devices: int
    free_devices: int
    device_model: str
    register_time: Optional[datetime]
    last_heartbeat_time: Optional[datetime]
    metrics_url: str


def _time(message: Any, field: str) -> datetime | None:
    if not message.HasField(field):
        return None
    stamp: Timestamp = getattr(message, field)
    since = timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + since


def _number(message: Any, field: str) -> float:
    return float(getattr(message, field)) if message.HasField(field) else math.nan


def _checkpoint(message: job_pb2.Checkpoint) -> Checkpoint:
    return Checkpoint(message.step, message.epoch, message.path, message.size_bytes,
                      _time(message, "create_time"))


def _best(message: job_pb2.Job) -> BestCheckpoint | None:
    best = message.best_checkpoint
    known = message.HasField("best_checkpoint")
    return BestCheckpoint(best.step, best.epoch, best.validation_loss) if known else None


def job(message: job_pb2.Job) -> Job:
    """Makes the record from the API's message, as the functions below do."""
    known = message.HasField("progress")
    progress = message.progress
    return Job(
        id=message.id, name=message.spec.name,
        state=cast(State, _spec.enum_name(job_pb2.JobState, message.state)),
        state_reason=message.state_reason,
        step=progress.step, total_steps=progress.total_steps if known else message.spec.steps,
        loss=_number(progress, "loss"),
        validation_loss=_number(progress, "validation_loss"),
        tokens_per_second=progress.tokens_per_second or math.nan, mfu=_number(progress, "mfu"),
        eta_seconds=progress.eta_seconds,
        epoch=message.epoch, restarts=message.restarts,
        create_time=_time(message, "create_time"), start_time=_time(message, "start_time"),
        finish_time=_time(message, "finish_time"),
        namespace=message.namespace, submitter=message.submitter,
        labels=dict(message.spec.labels), checkpoints=[_checkpoint(c) for c in message.checkpoints],
        spec=_spec.to_dict(message.spec), revision=message.revision,
        continued_by=message.continued_by, best_checkpoint=_best(message))


def _of_step(message: job_pb2.StepRecord, name: str) -> Any:
    """Returns the field of Step that has this name."""
    if name == "finish_time":
        return _time(message, name)
    if name == "gpu_throttle_reasons":
        return ",".join(message.gpu_throttle_reasons)
    if name == "generated":
        return tuple((text.prompt, text.text) for text in message.generated)
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        return getattr(message.phases, name[:-len("_seconds")])
    return _number(message, name) if field.has_presence else getattr(message, name)


def step(message: job_pb2.StepRecord) -> Step:
    return Step(*(_of_step(message, name) for name in Step._fields))


def log_line(message: job_pb2.LogLine) -> LogLine:
    return LogLine(_time(message, "time"), message.epoch, message.rank, message.text)


def event(message: job_pb2.Event) -> Event:
    return Event(_time(message, "time"), _spec.enum_name(job_pb2.EventType, message.type),
                 message.epoch, message.message)


def worker(message: cluster_pb2.Worker) -> Worker:
    devices = message.devices
    return Worker(
        id=message.id, hostname=message.hostname, version=message.version,
        state=_spec.enum_name(cluster_pb2.WorkerState, message.state),
        devices=len(devices), free_devices=sum(not device.job_id for device in devices),
        device_model=devices[0].model if devices else "",
        register_time=_time(message, "register_time"),
        last_heartbeat_time=_time(message, "last_heartbeat_time"), metrics_url=message.metrics_url)
