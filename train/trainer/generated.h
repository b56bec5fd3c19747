// Lets a model that is trained go on with texts, in whatever layout it is trained.
//
// A token takes one forward pass of the training program over a micro-batch, of which each of the
// first sequences is a text so far. That keeps no keys and values from token to token, but needs no
// memory for another copy of the model, and computes what training computes: the same ranks,
// formats and kernels. Rank 0 alone knows the tokenizer, and draws the tokens.

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

// Not thread-safe. All ranks call each function together.
class TextGenerator {
 public:
  struct Options {
    const GenerationConfig& config;  // Must outlive the generator, as the other references.
    int64_t sequence = 0;            // Tokens of a text at most, with its prompt.
    uint64_t seed = 0;
    const PromptCodec* codec = nullptr;  // On rank 0.
    std::vector<InputSpec> inputs = {};  // The inputs that the model reads.
    BatchShape shape = {};
    RankEngine& engine;  // Whose program has RecordOptions::last_logits.
    Collective& everyone;
    std::function<void()> progress = nullptr;  // Called before each forward pass.
    std::function<bool()> stop = nullptr;      // If true on one rank, there are no texts.
  };
  // INVALID_ARGUMENT, on all ranks: a prompt has no tokens, or so many that no more fits into a
  // sequence; the message names the prompt. Errors of PromptCodec::Encode.
  static absl::StatusOr<std::unique_ptr<TextGenerator>> Create(const Options& options);

  // Returns the texts on rank 0, in the order of the prompts, and none on other ranks or if one of
  // the ranks is to stop.
  std::vector<GeneratedText> Write();

 private:
  struct Text {
    std::vector<int32_t> ids;
    bool ended = false;
  };
  // Where this context rank and its tensor ranks have the last token of one of their sequences.
  struct Place {
    int64_t tensor_rank = -1;  // -1: another context rank has the token, or there is no text.
    int64_t row = 0;           // Of the head's input on that rank.
  };

  explicit TextGenerator(const Options& options) : options_(options) {}

  absl::Status Encode();  // On rank 0.
  void SharePrompts();    // Those of rank 0.
  // Adds a token to each text that has not ended. The first one is that of the prompt `first`.
  // Returns false, and adds none, if a rank wants to stop.
  bool AddTokens(std::span<Text> texts, size_t first, int64_t token);
  // On rank 0: the next token of each text, or -1 behind its end.
  std::vector<int64_t> Draw(std::span<const Text> texts, size_t first,
                            std::span<const float> logits, int64_t token) const;
  std::vector<Place> LastPlaces(std::span<const Text> texts) const;  // By this rank's texts.
  // Writes this rank's part of the logits after each text to `logits`, [texts, vocab].
  void AddLogits(const std::vector<Place>& places, std::span<float> logits) const;
  int64_t head_rows() const;  // The rows of the head's input on this rank.
  int64_t texts_of_rank() const { return LastRowsOf(options_.shape.micro); }

  const Options options_;
  std::vector<EncodedPrompt> prompts_;
  int64_t vocab_ = 0;  // Of the tokenizer.
};

}  // namespace trainyard
