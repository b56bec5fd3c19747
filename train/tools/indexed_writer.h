// Writes a corpus as a Megatron indexed dataset (indexed_format.h). Each document is one sequence,
// as in the files that Megatron's own preprocessing writes.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_descriptor.h"
#include "train/data/indexed_format.h"
#include "train/tools/prefix_lock.h"

namespace trainyard {

// Writes the tokens to PREFIX.bin.tmp. The files PREFIX.bin and PREFIX.idx do not exist before
// Finish is called. If Finish is not called, the destructor removes the temporary file, unless Sync
// was called: then Resume goes on from there. Not thread-safe.
class IndexedWriter {
 public:
  // Removes an old PREFIX.idx and PREFIX.bin, and creates the temporary file. CHECKs that `dtype`
  // is an integer type. Errors name the path. FAILED_PRECONDITION: another writer holds the lock of
  // the prefix. A writer holds the lock until Finish has ended, or it is destroyed.
  static absl::StatusOr<std::unique_ptr<IndexedWriter>> Create(const std::string& prefix,
                                                               IndexDType dtype);
  static absl::StatusOr<std::unique_ptr<IndexedWriter>> Create(PrefixLock lock, IndexDType dtype);
  // Goes on where a writer was at a call of Sync, with the numbers of documents and tokens that it
  // had then. What came later is cut off. DATA_LOSS: the temporary files have less than that.
  static absl::StatusOr<std::unique_ptr<IndexedWriter>> Resume(PrefixLock lock, IndexDType dtype,
                                                               int64_t documents, int64_t tokens);
  ~IndexedWriter();

  // Appends a document. Returns OUT_OF_RANGE if the dtype cannot hold a token, or if the document
  // has 2^31 tokens or more.
  absl::Status AddDocument(std::span<const int32_t> tokens);

  // Makes what was written survive a power cut, and keeps the temporary files from now on:
  // PREFIX.bin.tmp, and PREFIX.len.tmp with the length of each document.
  absl::Status Sync();

  // Makes PREFIX.bin of the temporary file, then writes PREFIX.idx. Call Finish once, last.
  absl::Status Finish();

  int64_t documents() const { return int64_t(lengths_.size()); }
  int64_t tokens() const { return tokens_; }

 private:
  IndexedWriter(PrefixLock lock, IndexDType dtype);
  absl::Status Flush();
  std::string Index() const;

  std::optional<PrefixLock> lock_;  // Until Finish has ended.
  const std::string prefix_;
  const IndexDType dtype_;
  FileDescriptor file_;
  FileDescriptor lengths_file_;  // From the first Sync on.
  std::string buffer_;
  std::vector<int32_t> lengths_;
  size_t lengths_synced_ = 0;  // How many of them PREFIX.len.tmp has.
  int64_t tokens_ = 0;
};

}  // namespace trainyard
