#include "controller/service/open_streams.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace trainyard::controller {

bool OpenStreams::Add(grpc::ServerContextBase& context) {
  Stream stream{.caller = gate_.CallerOf(context), .admitted = true, .end = {}};
  const MutexLock lock(mutex_);
  if (stream.caller.ok()) {
    const size_t open = ++counts_[stream.caller->account()];
    stream.admitted = stream.caller->local || open <= most_;
  }
  const bool admitted = stream.admitted;
  streams_.insert_or_assign(&context, std::move(stream));
  return admitted;
}

void OpenStreams::Remove(grpc::ServerContextBase& context) {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(&context);
  if (found == streams_.end()) return;
  if (found->second.caller.ok()) {
    const auto count = counts_.find(found->second.caller->account());
    if (--count->second == 0) counts_.erase(count);
  }
  streams_.erase(found);
}

absl::Status OpenStreams::CheckLocked(const grpc::ServerContextBase& context,
                                      const Stream& stream) const {
  ASSIGN_OR_RETURN(const Principal caller, gate_.CallerOf(context));
  RETURN_IF_ERROR(stream.caller.status());
  if (!stream.admitted) {
    return absl::ResourceExhaustedError(
        absl::StrCat(caller.name, " has ", most_,
                     " open streams and may have no more; end one of them, or wait"));
  }
  if (caller.roles == stream.caller->roles && caller.name_space == stream.caller->name_space) {
    return absl::OkStatus();
  }
  return absl::UnavailableError("the rights of the caller have changed: call again");
}

absl::Status OpenStreams::Check(grpc::ServerContextBase& context) const {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(&context);
  if (found == streams_.end()) return absl::CancelledError("the stream is over");
  return CheckLocked(context, found->second);
}

void OpenStreams::OnEnd(grpc::ServerContextBase& context, End end) {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(&context);
  if (found != streams_.end()) found->second.end = std::move(end);
}

void OpenStreams::Sweep() {
  std::vector<std::pair<End, absl::Status>> ends;
  {
    const MutexLock lock(mutex_);
    for (auto& [context, stream] : streams_) {
      absl::Status status = CheckLocked(*context, stream);
      if (status.ok()) continue;
      if (stream.end && !stream.ended) {
        ends.emplace_back(stream.end, std::move(status));
      } else {
        context->TryCancel();
      }
      stream.ended = true;
    }
  }
  for (const auto& [end, status] : ends) end(status);
}

}  // namespace trainyard::controller
