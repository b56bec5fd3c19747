// Conversations to fine-tune on. Each line of a file is one (docs/chat.md). The model learns to
// write the answers alone.
//
// With DataOptions::pairs, a line has two conversations, which differ in the answer that people
// prefer. Both stand in one sample, the chosen one first.
//
// Conversations are packed (packed_order.h): a sample has several whole ones, whose tokens do not
// attend to each other, and perhaps padding at the end. A conversation of n tokens takes n - 1
// places: at each, the input is a token and the target is the next one.

#pragma once

#include <string>

#include "train/data/dataset.h"

namespace trainyard {

// What becomes of a conversation that is longer than a sample.
enum class TooLong {
  kRefuse,  // The job does not start.
  kCut,     // Its end is left out.
  kDrop,    // It is left out.
};

struct ChatData {
  std::string path;
  std::string tokenizer = {};  // A file or a directory. Empty in a spec: that of model.import.
  std::string format = {};     // As --format of trainyard-tokenize, and the next.
  std::string date = {};
  double validation_fraction = 0;  // Held out from the end, in lines.
  TooLong too_long = TooLong::kRefuse;

  static const DataSource& Source() { return ChatSource(); }
};

// Opens the file with the encoding that options.open_lines makes, which CHECKs. The last
// floor(validation_fraction * lines) lines are for validation. Errors name the file: those of
// OpenLineIndex and of options.open_lines; INVALID_ARGUMENT if a line is too long and is to be
// refused, if a fraction above 0 holds out nothing, or if a part has no line with a target that
// counts. Reading a sample returns DATA_LOSS if a line
// has not as many tokens any more as when the file was opened.
absl::StatusOr<DataSplits> OpenChat(const ChatData& source, const DataOptions& options);

}  // namespace trainyard
