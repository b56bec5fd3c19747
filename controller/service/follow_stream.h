// A server stream that follows a job. The stream sends its initial metadata at once, so that the
// client knows that it is served although there may be no message for hours. Then the stream asks
// its source for messages, waits until the job changes, asks again, and ends when the source says
// so. There is no queue: for a slow client, the stream holds one message.

#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "controller/book/job_book.h"
#include "controller/service/executor.h"

namespace trainyard::controller {

enum class Fill { kSome, kNothingYet, kEnd };

// The answer of a source: it has filled a message, or has nothing yet, or the stream ends with
// `status`.
struct Filled {
  Fill fill = Fill::kEnd;
  grpc::Status status;
};

template <typename Response>
class FollowStream final : public grpc::ServerWriteReactor<Response>,
                           public JobListener,
                           public std::enable_shared_from_this<FollowStream<Response>> {
 public:
  // Called from one thread at a time; may read the store.
  using Source = std::function<Filled(Response&)>;

  // The executor of a stream's work, and the caller whose turn the work takes.
  struct Place {
    Executor& executor;
    std::string whose;
  };

  // Owns itself until gRPC is done with it.
  static std::shared_ptr<FollowStream> Start(JobBook& book, Place place, const std::string& job_id,
                                             Source source) {
    auto stream =
        std::shared_ptr<FollowStream>(new FollowStream(std::move(place), std::move(source)));
    {
      const MutexLock lock(stream->mutex_);
      stream->self_ = stream;
    }
    stream->StartSendInitialMetadata();
    book.Subscribe(job_id, stream);  // First, so no change is missed.
    stream->OnJobChanged();
    return stream;
  }

  // Ends the stream as soon as nothing is being written.
  void End(const grpc::Status& status) {
    {
      MutexLock lock(mutex_);
      if (!end_) end_ = status;
    }
    OnJobChanged();
  }

  void OnJobChanged() override {
    place_.executor.Post(place_.whose, [weak = this->weak_from_this()] {
      if (const auto stream = weak.lock()) stream->Pump();
    });
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      busy_ = false;
      if (!ok && !end_) end_ = grpc::Status::CANCELLED;
    }
    OnJobChanged();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    std::shared_ptr<FollowStream> self;
    MutexLock lock(mutex_);
    self.swap(self_);
    // self must outlive the lock above.
    place_.executor.Post(place_.whose, [self = std::move(self)] {});
  }

 private:
  FollowStream(Place place, Source source) : place_(std::move(place)), source_(std::move(source)) {}

  // Runs on the executor alone, so one call at a time.
  void Pump() {
    {
      MutexLock lock(mutex_);
      if (busy_ || finished_) return;
      if (end_) return FinishLocked(*end_);
      busy_ = true;
    }
    response_.Clear();
    const Filled filled = source_(response_);
    MutexLock lock(mutex_);
    if (filled.fill == Fill::kSome && !end_) {
      this->StartWrite(&response_);
      return;
    }
    busy_ = false;
    if (end_) {
      FinishLocked(*end_);
    } else if (filled.fill == Fill::kEnd) {
      FinishLocked(filled.status);
    }
  }

  void FinishLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    finished_ = true;
    this->Finish(status);
  }

  const Place place_;
  const Source source_;
  Response response_;
  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // A message is being filled or written.
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<FollowStream> self_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::controller
