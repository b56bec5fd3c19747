// Texts that grow, several at once: computes what may follow each, and keeps the keys and values of
// their tokens and the states of recurrent layers, so that no token is computed twice. The weights
// are read once for the next token of all texts.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/program/executable.h"

namespace trainyard {

// A token that a replay of a program with a cache reads.
struct NewToken {
  int32_t token = 0;
  int64_t position = -1;  // -1: nobody reads this token.
  int64_t first_row = 0;  // Of its text, in the rows that it may see.
  int64_t cache_row = 0;  // Of its text, in the cache.
};
// Replays a chunk for its tokens. If tensor ranks divide the model, each calls this with the same
// tokens.
void ReplayTokens(Executable& executable, int chunk, std::span<const NewToken> tokens);
// Must be called once before the first replay.
void ZeroCaches(Executable& executable);

class GrowingTexts {
 public:
  // The most tokens of a text that one replay reads, if there are several.
  static constexpr int64_t kAtOnce = 32;
  using Replay = std::function<void(int chunk, std::span<const NewToken> tokens)>;

  // `executable` was recorded with RecordOptions::cache for about kAtOnce tokens at most, and is
  // loaded. `replay` calls ReplayTokens on each rank that holds a part of the model, and all of
  // these have called ZeroCaches. Null: this rank holds all of it, and its caches are set to zero.
  // `texts`: how many texts there are at most; 0: as many as the program keeps.
  explicit GrowingTexts(Executable& executable, Replay replay = nullptr, int64_t texts = 0);

  // How many texts there are at most.
  size_t places() const { return seen_.size(); }

  // The rows of an output of the program, each with the place of the text whose last token it is
  // of. They stay until the next replay.
  struct Rows {
    std::string output;
    std::vector<std::pair<size_t, int64_t>> of_places;
  };
  // Reads tokens that each text has beyond those of the last call. An empty text is none. If a text
  // has more tokens than the cache, the model sees the last ones of it: at least half as many as
  // the cache holds, beginning at a multiple of that. Calls `use` once or more, together for each
  // text that is now read to its end. The others, which have several new tokens, need further
  // calls: meanwhile the texts beside them grow. What a text gets does not depend on the texts
  // beside it.
  void Read(std::span<const std::span<const int32_t>> texts,
            const std::function<void(const Rows&)>& use);
  // Says that the next text at this place is another one.
  void Forget(size_t place) { seen_[place].clear(); }

 private:
  void ReadSeveral(size_t place, std::span<const int32_t> tokens);

  const Replay replay_;
  const int64_t cache_;
  const int64_t at_once_;
  const size_t kept_;                       // Texts of the program.
  const int64_t rows_;                      // Of a text in the cache.
  const int64_t alone_;                     // More new tokens are read by themselves.
  std::vector<std::vector<int32_t>> seen_;  // The tokens that were read.
};

}  // namespace trainyard
