// Encodes blocks of documents on several threads, and returns them in order.

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "train/chat/chat_encoder.h"
#include "train/tokenizer/tokenizer.h"
#include "train/tools/document_blocks.h"

namespace trainyard {

struct EncodingOptions {
  std::string field = "text";                    // kJsonLines: where the text is.
  std::vector<int32_t> before = {}, after = {};  // Ids around each document.
  const ChatTokenizer* chat = nullptr;           // kChat: not null. It must outlive the pool.
};

struct EncodedBlock {
  std::vector<int32_t> tokens = {};  // Of all documents, one after the other.
  std::vector<int32_t> lengths =
      {};  // How many each document has. Documents without text are left out.
  CorpusPosition end = {};
  int64_t bytes = 0;  // Of the block that was encoded.
};

// Add and Take are for one thread.
class EncodingPool {
 public:
  // Starts the threads. `tokenizer` must outlive the pool.
  EncodingPool(const Tokenizer& tokenizer, EncodingOptions options, int threads);
  ~EncodingPool();  // Waits for blocks that are being encoded, and drops the others.

  void Add(DocumentBlock block);
  int64_t waiting() const { return added_ - taken_; }  // Blocks that were added and not taken.

  // Waits for the block that was added first of those that were not taken. There must be one.
  // DATA_LOSS: a line is no JSON. INVALID_ARGUMENT: it is no object, has no text in the field, or
  // is no chat. They name the file and the line.
  absl::StatusOr<EncodedBlock> Take();

 private:
  void Run();
  struct Encoders;
  absl::StatusOr<EncodedBlock> Encode(Encoders& encoders, const DocumentBlock& block) const;
  absl::Status EncodeDocument(Encoders& encoders, DocumentSplit split, absl::string_view document,
                              std::vector<int32_t>& tokens) const;

  const Tokenizer& tokenizer_;
  const EncodingOptions options_;
  int64_t added_ = 0, taken_ = 0;

  Mutex mutex_;
  CondVar changed_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::pair<int64_t, DocumentBlock>> work_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, absl::StatusOr<EncodedBlock>> done_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace trainyard
