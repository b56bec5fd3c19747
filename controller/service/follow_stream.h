// A server stream that follows a job: it sends what there is, waits until the job changes, sends
// again, and ends when its source says so. It pulls, so a slow client holds one message, not a
// queue.

#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "controller/jobs/job_book.h"
#include "controller/service/executor.h"

namespace trainyard::controller {

enum class Fill { kSome, kNothingYet, kEnd };

// What a source answers: a message was filled, or nothing is there yet, or the stream ends with
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

  // Owns itself until gRPC is done with it.
  static FollowStream* Start(JobBook& book, Executor& executor, const std::string& job_id,
                             Source source) {
    auto stream = std::shared_ptr<FollowStream>(new FollowStream(executor, std::move(source)));
    {
      const MutexLock lock(stream->mutex_);
      stream->self_ = stream;
    }
    book.Subscribe(job_id, stream);  // First: a change between the two is only looked at twice.
    stream->OnJobChanged();
    return stream.get();
  }

  void OnJobChanged() override {
    executor_.Post([weak = this->weak_from_this()] {
      if (const auto stream = weak.lock()) stream->Pump();
    });
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      busy_ = false;
      if (!ok) cancelled_ = true;
    }
    OnJobChanged();
  }

  void OnCancel() override {
    {
      MutexLock lock(mutex_);
      cancelled_ = true;
    }
    OnJobChanged();
  }

  void OnDone() override {
    std::shared_ptr<FollowStream> self;
    MutexLock lock(mutex_);
    self.swap(self_);
    executor_.Post([self = std::move(self)] {});  // Outlives this call's lock.
  }

 private:
  FollowStream(Executor& executor, Source source)
      : executor_(executor), source_(std::move(source)) {}

  // On the executor only, so one at a time.
  void Pump() {
    {
      MutexLock lock(mutex_);
      if (busy_ || finished_) return;
      if (cancelled_) return FinishLocked(grpc::Status::CANCELLED);
      busy_ = true;
    }
    response_.Clear();
    const Filled filled = source_(response_);
    MutexLock lock(mutex_);
    if (filled.fill == Fill::kSome) {
      this->StartWrite(&response_);
      return;
    }
    busy_ = false;
    if (cancelled_) {
      FinishLocked(grpc::Status::CANCELLED);
    } else if (filled.fill == Fill::kEnd) {
      FinishLocked(filled.status);
    }
  }

  void FinishLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    finished_ = true;
    this->Finish(status);
  }

  Executor& executor_;
  const Source source_;
  Response response_;
  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // Filling or writing.
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<FollowStream> self_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::controller
