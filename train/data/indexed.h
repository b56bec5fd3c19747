// Megatron's indexed dataset as a source of samples: corpora prepared for NeMo or Megatron work
// unchanged.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "train/data/token_stream.h"

namespace trainyard {

struct IndexedData {
  std::string prefix;                 // PREFIX.bin and PREFIX.idx.
  double validation_fraction = 0;     // Held out from the end, in documents.
  bool reset_attention_mask = false;  // Tokens attend only within their document.
  bool eod_mask_loss = false;  // The target behind the last token of a document is not counted.

  static const DataSource& Source() { return IndexedSource(); }
};

// The path of an indexed dataset is a prefix.
SourceRule PrefixRule();

// Documents are joined in the order of the index. Validation are the last floor(fraction *
// documents) of them, at least one where the fraction is above 0. Reads the whole index once, and
// keeps 8 bytes per 64 sequences.
absl::StatusOr<SplitStream> OpenIndexed(const IndexedData& source, int64_t vocab,
                                        const Roots& roots);

// Opens the tokenizer that PREFIX.tokenizer holds. Null: nobody has said which one made the tokens.
// Errors name the path: INVALID_ARGUMENT if the directory has no tokenizer's file, or if the model
// lacks some of its ids; those of DataOptions::open_lines.
absl::StatusOr<std::shared_ptr<const LineEncoding>> OpenTokenizerOf(const std::string& prefix,
                                                                    const DataOptions& options);

// Puts what is known of it into the splits. `encoding` may be null. INVALID_ARGUMENT: another
// dataset of the splits has another tokenizer; names both.
absl::Status AddTokenizer(const std::shared_ptr<const LineEncoding>& encoding, DataSplits& splits);

}  // namespace trainyard
