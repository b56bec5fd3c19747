// Writes a corpus as a Megatron indexed dataset (indexed_format.h): one sequence a document, as
// Megatron's own preprocessing does.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/data/indexed_format.h"

namespace trainyard {

// Not thread-safe. Until Finish the names PREFIX.bin and PREFIX.idx do not exist; without it
// nothing stays.
class IndexedWriter {
 public:
  // `dtype` is an integer type. Errors name the path.
  static absl::StatusOr<std::unique_ptr<IndexedWriter>> Create(const std::string& prefix,
                                                               IndexDType dtype);
  ~IndexedWriter();

  // OUT_OF_RANGE for a token that the dtype cannot hold, or a document of 2^31 tokens and more.
  absl::Status AddDocument(std::span<const int32_t> tokens);

  // PREFIX.bin, then PREFIX.idx.
  absl::Status Finish();

  int64_t documents() const { return int64_t(lengths_.size()); }
  int64_t tokens() const { return tokens_; }

 private:
  IndexedWriter(std::string prefix, IndexDType dtype);
  absl::Status Flush();
  std::string Index() const;

  const std::string prefix_;
  const IndexDType dtype_;
  int fd_ = -1;
  std::string buffer_;
  std::vector<int32_t> lengths_;
  int64_t tokens_ = 0;
};

}  // namespace trainyard
