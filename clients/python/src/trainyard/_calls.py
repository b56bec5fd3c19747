"""The parts that the two forms of the client share.

This module has the methods of the API, and decides when a call is repeated and how a stream goes on
where it broke off. cli/client.h does the same for the command line.
"""
from __future__ import annotations

import importlib.metadata
import os
import random
import time
from dataclasses import dataclass
from typing import Any, Generic, Iterable, Protocol, TypeVar, Union

import grpc

from trainyard import _spec, errors, records
from trainyard._credentials import Credential, Places, parse_address
from trainyard.v1 import cluster_pb2, cluster_pb2_grpc, job_pb2, job_pb2_grpc

Request = TypeVar("Request")
Response = TypeVar("Response")
Item = TypeVar("Item")
_Item = TypeVar("_Item", covariant=True)
JobOrId = Union[records.Job, str]

_CALL_SECONDS = 20.0  # Deadline of one attempt.
_STREAM_SECONDS = 3600.0  # Deadline of one attempt. Then the stream is opened again.
_UNREACHABLE_SECONDS = 3.0  # A call is repeated for so long without any answer.
_AWAY_SECONDS = 60.0  # A stream that was served before is repeated for so long.
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_STREAM_OPEN = "trainyard-stream-open"  # common/stream_open.h.


@dataclass(frozen=True)
class Method(Generic[Request, Response]):
    """A method of a generated stub. The types of its messages are for type checkers."""

    stub: Any
    name: str


GET_JOB = Method[job_pb2.GetJobRequest, job_pb2.GetJobResponse](
    job_pb2_grpc.JobServiceStub, "GetJob")
SUBMIT_JOB = Method[job_pb2.SubmitJobRequest, job_pb2.SubmitJobResponse](
    job_pb2_grpc.JobServiceStub, "SubmitJob")
LIST_JOBS = Method[job_pb2.ListJobsRequest, job_pb2.ListJobsResponse](
    job_pb2_grpc.JobServiceStub, "ListJobs")
CANCEL_JOB = Method[job_pb2.CancelJobRequest, job_pb2.CancelJobResponse](
    job_pb2_grpc.JobServiceStub, "CancelJob")
LIST_EVENTS = Method[job_pb2.ListEventsRequest, job_pb2.ListEventsResponse](
    job_pb2_grpc.JobServiceStub, "ListEvents")
LIST_WORKERS = Method[cluster_pb2.ListWorkersRequest, cluster_pb2.ListWorkersResponse](
    cluster_pb2_grpc.ClusterServiceStub, "ListWorkers")


def job_id(job: JobOrId) -> str:
    return job if isinstance(job, str) else job.id


def submit_request(spec: _spec.Spec, namespace: str, request_id: str) -> job_pb2.SubmitJobRequest:
    return job_pb2.SubmitJobRequest(spec=_spec.to_message(spec), request_id=request_id,
                                    namespace=namespace)


def list_request(states: Iterable[records.State], namespace: str,
                 page_size: int) -> job_pb2.ListJobsRequest:
    known: dict[str, Any] = {_spec.enum_name(job_pb2.JobState, number): number
                             for number in job_pb2.JobState.values() if number != 0}
    wanted = [states] if isinstance(states, str) else [*states]
    for state in wanted:
        if state not in known:
            raise errors.InvalidArgument(
                f"states: wanted some of {', '.join(known)}, found {state!r}")
    return job_pb2.ListJobsRequest(namespace=namespace, page_size=page_size,
                                   states=[known[state] for state in wanted])


class Target:
    """The controller that a client calls, and the credential that the client shows."""

    def __init__(self, address: str | None, places: Places, timeout: float | None):
        text = address or os.environ.get("TRAINYARD_CONTROLLER") or "127.0.0.1:7070"
        self._parsed = parse_address(text)
        self.address = str(self._parsed)
        self.timeout = _CALL_SECONDS if timeout is None else timeout
        self._places = places
        self._credential = places.find(self._parsed)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        token = self._credential.token
        return (("authorization", f"Bearer {token}"),) if token else ()

    def renew(self, shown: tuple[tuple[str, str], ...]) -> bool:
        """Looks for the credential again, because a restarted controller may have a new token.

        Returns whether the credential differs from `shown`. Another thread may have found the new
        credential first.
        """
        found = self._places.find(self._parsed)
        # A channel keeps the authorities that it was opened with.
        self._credential = Credential(found.token, self._credential.authorities)
        return self.metadata() != shown

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """Returns None if there is no TLS, which Places allows only on loopback."""
        authorities = self._credential.authorities
        return grpc.ssl_channel_credentials(authorities) if authorities else None

    def channel_options(self) -> list[tuple[str, Any]]:
        options: list[tuple[str, Any]] = [
            # What controller/service/server.cc permits.
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
            # The controller cuts off who is idle for a minute, and gRPC would complain of that.
            ("grpc.client_idle_timeout_ms", 30_000),
            ("grpc.max_receive_message_length", 64 << 20),
            # A controller that is back is noticed within a second.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.dns_min_time_between_resolutions_ms", 500),
        ]
        if self._parsed.loopback:
            # A proxy of the environment is no place for the token of this machine.
            options.append(("grpc.enable_http_proxy", 0))
        return options

    def explain(self, error: Any) -> errors.Error:
        """Returns the exception for a call's failure. The message says what to do."""
        code, details = error.code(), error.details()
        if code is grpc.StatusCode.UNAVAILABLE:
            return errors.Unavailable(self._unreachable(details))
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.DeadlineExceeded(self._unreachable("no answer in time"))
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return errors.Unauthenticated(
                f"{details}; run 'trainyard login {self.address}', or name a token with "
                "Client(token=...) or TRAINYARD_TOKEN_FILE. The token of a controller on this "
                "machine lies in its state directory, STATE/token")
        if code is grpc.StatusCode.UNIMPLEMENTED:
            wheel = importlib.metadata.version("trainyard")
            return errors.VersionMismatch(
                f"what answers at {self.address} does not have the API {api()} of this wheel, "
                f"trainyard {wheel} ({details}): install the wheel of the controller's release, "
                "which 'trainyard-controller --version' tells, or upgrade the controller")
        return errors.from_grpc(error)

    def _unreachable(self, cause: str) -> str:
        if self._credential.authorities:
            return (f"no controller that its authority proves answers at {self.address} ({cause}); "
                    "see that it runs and that this is a host of its certificate "
                    "('trainyard-controller init --host'), or run 'trainyard login "
                    f"{self.address}' again")
        return (f"no controller answers at {self.address} ({cause}); start one with "
                "'trainyard up', say where it is with Client(address) or TRAINYARD_CONTROLLER, "
                "or, for one that serves other machines, run 'trainyard login'")


def api() -> str:
    return str(job_pb2.DESCRIPTOR.package)


class Attempts:
    """Decides whether and when one call or stream is tried again after a failure."""

    def __init__(self, target: Target, until: float | None = None):
        """All attempts end at `until`, a time of time.monotonic()."""
        self._target = target
        self._until = until
        self._served = False
        self._failing_since: float | None = None
        self._pause = _FIRST_PAUSE_SECONDS
        self._shown: tuple[tuple[str, str], ...] = ()

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata that the next attempt shows the controller."""
        self._shown = self._target.metadata()
        return self._shown

    def stream_seconds(self) -> float:
        """Returns the deadline of the next attempt of a stream."""
        if self._until is None:
            return _STREAM_SECONDS
        return max(0.001, min(_STREAM_SECONDS, self._until - time.monotonic()))

    def opened(self, metadata: Any) -> None:
        """Called with the initial metadata of a stream, which may have no message for hours."""
        if any(key == _STREAM_OPEN for key, _ in metadata or ()):
            self.answered()

    def answered(self) -> None:
        self._served = True
        self._failing_since = None
        self._pause = _FIRST_PAUSE_SECONDS

    def pause_after(self, error: Any) -> float:
        """Returns the seconds to wait before the next attempt; raises if there is none."""
        now = time.monotonic()
        if self._until is not None and now >= self._until:
            raise TimeoutError("the job has not ended in time; it goes on")
        code = error.code()
        late = code is grpc.StatusCode.DEADLINE_EXCEEDED and self._served
        if late:
            return 0.0
        if code is grpc.StatusCode.UNAUTHENTICATED and self._target.renew(self._shown):
            return 0.0
        if code is not grpc.StatusCode.UNAVAILABLE:
            raise self._target.explain(error) from None
        if self._failing_since is None:
            self._failing_since = now
        patience = _AWAY_SECONDS if self._served else _UNREACHABLE_SECONDS
        if now - self._failing_since > patience:
            raise self._target.explain(error) from None
        pause = self._pause * random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        if self._until is not None:
            pause = min(pause, max(0.0, self._until - now))
        return pause


class Stream(Protocol[_Item]):
    """A stream that can be opened again, and then goes on after the last item that was seen."""

    @property
    def method(self) -> Method[Any, Any]: ...

    def request(self) -> Any:
        """Returns the request of the next attempt."""

    def take(self, response: Any) -> Iterable[_Item]:
        """Returns the items of a message that were not seen before."""

    def rewind(self, error: Any) -> bool:
        """Returns whether to begin anew after this failure."""

    def end(self) -> None:
        """Called when the controller ended the stream. Raises if there should be more."""


class Watch:
    method = Method[Any, Any](job_pb2_grpc.JobServiceStub, "WatchJob")

    def __init__(self, job: JobOrId):
        self._request = job_pb2.WatchJobRequest(job_id=job_id(job))
        self._last: records.Job | None = None
        self._rewound = False

    def request(self) -> job_pb2.WatchJobRequest:
        return self._request

    def take(self, response: job_pb2.WatchJobResponse) -> Iterable[records.Job]:
        self._last = records.job(response.job)
        self._request.after_revision = self._last.revision
        return [self._last]

    def rewind(self, error: Any) -> bool:
        # A controller that came back with an older store: what it has now counts.
        first = error.code() is grpc.StatusCode.OUT_OF_RANGE and not self._rewound
        if first:
            self._rewound = True
            self._request.after_revision = 0
        return first

    def end(self) -> None:
        if self._last is None or not self._last.finished:
            raise errors.Error(
                f"the controller ended the stream of {self._request.job_id} before the job ended; "
                "watch it again", grpc.StatusCode.INTERNAL)

    def outcome(self) -> records.Job:
        """Returns the job that has succeeded; raises JobFailed or JobCancelled."""
        assert self._last is not None, "the stream has ended"
        if self._last.state == "FAILED":
            raise errors.JobFailed(self._last)
        if self._last.state == "CANCELLED":
            raise errors.JobCancelled(self._last)
        return self._last


class Steps:
    method = Method[Any, Any](job_pb2_grpc.JobServiceStub, "StreamSteps")

    def __init__(self, job: JobOrId, after: int, follow: bool):
        self._request = job_pb2.StreamStepsRequest(job_id=job_id(job), after_step=after,
                                                   follow=follow)

    def request(self) -> job_pb2.StreamStepsRequest:
        return self._request

    def take(self, response: job_pb2.StreamStepsResponse) -> Iterable[records.Step]:
        for record in response.steps:
            self._request.after_step = record.step
            yield records.step(record)

    def rewind(self, error: Any) -> bool:
        return False

    def end(self) -> None:
        pass


class Logs:
    method = Method[Any, Any](job_pb2_grpc.JobServiceStub, "StreamLogs")

    def __init__(self, job: JobOrId, rank: int | None, follow: bool):
        self._request = job_pb2.StreamLogsRequest(job_id=job_id(job), rank=rank, follow=follow)
        # A controller of an earlier release numbers no lines, and its stream starts over.
        self._seen = 0  # Lines that were returned.
        self._skip = 0  # Lines to leave out if they have no numbers.
        self._continues = False

    def request(self) -> job_pb2.StreamLogsRequest:
        self._skip = self._seen
        self._continues = self._request.after > 0
        return self._request

    def take(self, response: job_pb2.StreamLogsResponse) -> Iterable[records.LogLine]:
        for line in response.lines:
            if line.n > 0:
                self._request.after = line.n
            if self._skip > 0 and not (self._continues and line.n > 0):
                self._skip -= 1
                continue
            self._seen += 1
            yield records.log_line(line)

    def rewind(self, error: Any) -> bool:
        return False

    def end(self) -> None:
        pass
