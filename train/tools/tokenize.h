// Writes corpora as a Megatron indexed dataset (indexed_format.h), and goes on after an
// interruption.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "train/chat/chat_encoder.h"
#include "train/tokenizer/tokenizer.h"
#include "train/tokenizer/tokenizer_files.h"
#include "train/tools/document_blocks.h"

namespace trainyard {

// How far a run is, with what earlier runs have done.
struct CorpusProgress {
  int64_t bytes = 0, all_bytes = 0;  // Of the inputs.
  int64_t documents = 0, tokens = 0;
};

struct CorpusOptions {
  std::vector<std::string> inputs = {};     // Files, whose documents follow each other.
  std::string prefix = {};                  // Writes PREFIX.bin and PREFIX.idx.
  std::optional<DocumentSplit> split = {};  // Of all inputs. Absent: SplitOfName of each.
  std::string field = "text";               // kJsonLines: the field that has the text.
  std::string before = {}, after = {};  // Tokens around each document, by their texts; empty: none.
  const ChatTokenizer* chat = nullptr;  // kChat: not null.
  std::string tokenizer = {};  // The digest of the tokenizer, so that another one is noticed.
  // Its files, which are written to PREFIX.tokenizer/ (train/data/indexed_format.h). Empty: tokens
  // are bytes.
  KeptFiles tokenizer_files = {};
  int threads = 1;
  size_t block_bytes = 1 << 20;             // What a thread encodes at once.
  int64_t sync_bytes = int64_t{256} << 20;  // Bytes of input between two states on disk.
  // Called at the beginning and after each block.
  std::function<void(const CorpusProgress&)> progress = [](const CorpusProgress&) {};
};

struct TokenizedCorpus {
  int64_t documents = 0;
  int64_t tokens = 0;
  bool finished = true;  // False: `stop` ended the work before the end.
};

// Writes the files, PREFIX.idx last, and makes their directory. The tokens are uint16 if the
// vocabulary has less than 65,500 ids, as in Megatron, and else int32, whatever `threads` is.
//
// While it works, PREFIX.state says how far the temporary files beside it go. If `stop` returns
// true, which is asked after each block, or the process ends, the same call goes on from there.
//
// Errors name the path. INVALID_ARGUMENT: the inputs have no document, one is there twice, the
// prefix has no name, or there is no token of that text. FAILED_PRECONDITION: one of the files is
// there already, another run writes them, or PREFIX.state is of other inputs or options, or of
// another tokenizer or program.
absl::StatusOr<TokenizedCorpus> TokenizeCorpus(
    const Tokenizer& tokenizer, const CorpusOptions& options,
    const std::function<bool()>& stop = [] { return false; });

}  // namespace trainyard
