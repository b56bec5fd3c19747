// Lets a model that is trained go on with texts, in whatever layout it is trained.
//
// A token takes one forward pass of the training program over a micro-batch, of which each sequence
// is a text so far. That keeps no keys and values from token to token, but needs no memory for
// another copy of the model, and computes what training computes: the same ranks, formats and
// kernels. Where the texts fill a micro-batch, they share its passes.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rank_records.h"
#include "kernels/collective/collective.h"
#include "models/program/input.h"
#include "train/chat/prompts.h"
#include "train/config/job_config.h"
#include "train/data/batch_reader.h"
#include "train/step/rank_engine.h"

namespace trainyard {

// Not thread-safe.
class TextGenerator {
 public:
  struct Options {
    const GenerationConfig& config;  // Must outlive the generator, as the other references.
    int64_t sequence = 0;            // Tokens of a text at most, with its prompt.
    uint64_t seed = 0;
    const PromptCodec& codec;
    std::vector<InputSpec> inputs = {};  // That the model reads.
    BatchShape shape = {};
    RankEngine& engine;  // Whose program has RecordOptions::last_logits.
    Collective& everyone;
    std::function<void()> progress = nullptr;  // Called before each forward pass.
  };
  // INVALID_ARGUMENT: a prompt has so many tokens that no more fits into a sequence; the message
  // names it. Errors of PromptCodec::Encode.
  static absl::StatusOr<std::unique_ptr<TextGenerator>> Create(const Options& options);

  // All ranks call this together, and get the same texts, in the order of the prompts. Errors:
  // those of PromptCodec::Decode.
  absl::StatusOr<std::vector<GeneratedText>> Write();

 private:
  struct Text {
    std::vector<int32_t> ids;
    bool ended = false;
  };
  explicit TextGenerator(const Options& options) : options_(options) {}

  // Adds a token to each of the texts that has not ended. There are at most as many as a
  // micro-batch of all data ranks has sequences.
  void AddTokens(std::span<Text> texts, std::span<const EncodedPrompt> prompts, int64_t token);
  // Where this context rank and its tensor ranks have the last token of one of their sequences.
  struct Place {
    int64_t tensor_rank = -1;  // -1: another context rank has the token, or there is no text.
    int64_t row = 0;           // Of the head's input on that rank.
  };
  // By this rank's sequences.
  std::vector<Place> LastPlaces(std::span<const Text> texts) const;
  // Writes this rank's part of the logits after each text to `logits`, [texts, vocab of the codec].
  void AddLogits(const std::vector<Place>& places, std::span<float> logits) const;
  int64_t head_rows() const;  // The rows of the head's input on this rank.

  const Options options_;
  std::vector<EncodedPrompt> prompts_;
};

}  // namespace trainyard
