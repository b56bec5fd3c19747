"""The exceptions that the client raises. All of them are derived from Error."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

import grpc

from trainyard.v1 import error_details_pb2, job_pb2

if TYPE_CHECKING:
    from trainyard.records import Job


class Error(Exception):
    """The base of all errors.

    `message` is for people. `code` is the status code of gRPC that the error has or stands for.
    """

    code = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, code: grpc.StatusCode | None = None):
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code

    def __reduce__(self) -> tuple[Any, ...]:  # For processes that hand errors on.
        return type(self), (self.message, self.code)


class Violation(NamedTuple):
    """One field that is wrong."""

    field: str  # Its path, such as "batch.global".
    description: str  # What was wanted, what was found, and the nearest legal value.


class InvalidArgument(Error):
    """An argument of the call is wrong. `violations` has the fields if they are known."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    violations: Sequence[Violation] = ()


class InvalidSpec(InvalidArgument):
    """Fields of a job's spec are wrong. `violations` has all that were found."""

    def __init__(self, violations: Sequence[Violation]):
        super().__init__("the spec is not valid\n  " + "\n  ".join(map(_line, violations)))
        self.violations = violations

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.violations,)


class NotFound(Error):
    """There is no such job in what the caller may see, or a named file is not there."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(Error):
    """The request_id was used before, with another spec."""

    code = grpc.StatusCode.ALREADY_EXISTS


class PermissionDenied(Error):
    """The caller's role does not allow the call."""

    code = grpc.StatusCode.PERMISSION_DENIED


class Unauthenticated(Error):
    """The controller does not know the caller: its token is missing, wrong, expired or revoked."""

    code = grpc.StatusCode.UNAUTHENTICATED


class FailedPrecondition(Error):
    """Something must be changed first. The message says what."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class ResourceExhausted(Error):
    """The queue is full, or the caller calls too often."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class Unavailable(Error):
    """No controller answers."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceeded(Error):
    """The controller was reached, and gave no answer in time."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class VersionMismatch(Error):
    """The controller does not have the API of this wheel."""

    code = grpc.StatusCode.UNIMPLEMENTED


class JobEnded(Error):
    """The job that was waited for did not succeed. `job` is its last state."""

    def __init__(self, job: Job):
        super().__init__(f"{job.id} {job.state}: {job.state_reason}".removesuffix(": "))
        self.job = job

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job,)


class JobFailed(JobEnded):
    """The job failed. `job.state_reason` names rank, machine and cause."""

    code = grpc.StatusCode.ABORTED


class JobCancelled(JobEnded):
    """The job was cancelled."""

    code = grpc.StatusCode.CANCELLED


_BY_CODE: dict[grpc.StatusCode, type[Error]] = {
    error.code: error
    for error in (InvalidArgument, NotFound, AlreadyExists, PermissionDenied, Unauthenticated,
                  FailedPrecondition, ResourceExhausted, Unavailable, DeadlineExceeded)
}


def make(code: grpc.StatusCode, message: str) -> Error:
    """Returns the error of this code."""
    kind = _BY_CODE.get(code)
    return Error(message, code) if kind is None else kind(message)


def from_grpc(error: Any) -> Error:
    """Returns the error that a call ended with. `error` is a grpc.RpcError of a call."""
    # gRPC may end a call without a word.
    message = error.details() or f"the call ended with {error.code().name}"
    if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
        return make(error.code(), message)
    violations = _violations(error)
    if violations and all(_is_of_spec(violation) for violation in violations):
        return InvalidSpec(violations)
    invalid = InvalidArgument("; ".join(map(_line, violations)) or message)
    invalid.violations = violations
    return invalid


def _line(violation: Violation) -> str:
    return f"{violation.field}: {violation.description}".removeprefix(": ")


def _is_of_spec(violation: Violation) -> bool:
    # "#99" is a field that the controller does not know; "" stands for the whole spec.
    first = violation.field.split(".")[0].split("[")[0]
    return first in job_pb2.JobSpec.DESCRIPTOR.fields_by_name or first[:1] in ("", "#")


def _violations(error: Any) -> list[Violation]:
    """Returns the field violations of an answer's google.rpc.BadRequest."""
    found: list[Violation] = []
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in error_details_pb2.Status.FromString(value).details:
            # In this process the message has another name than on the wire: see setup.py.
            if detail.type_url.rpartition("/")[2] == "google.rpc.BadRequest":
                request = error_details_pb2.BadRequest.FromString(detail.value)
                found += [Violation(v.field, v.description) for v in request.field_violations]
    return found
