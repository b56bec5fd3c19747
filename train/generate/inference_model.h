// A trained model that computes logits, with its tokenizer.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device/backend.h"
#include "models/program/executable.h"
#include "train/generate/growing_text.h"
#include "train/tokenizer/open_tokenizer.h"

namespace trainyard {

class InferenceModel {
 public:
  struct Options {
    std::string checkpoint;  // A checkpoint, or a job's checkpoint.directory.
    int64_t window = 0;      // Tokens that the model sees at once; 0: as in training.
    int threads = 1;
  };

  // What the model will be asked: Run for texts that are known, or After for one that grows.
  enum class Use { kWhole, kGrowing };

  // Loads the newest good checkpoint, and logs why newer ones were refused. Weights are widened to
  // f32; weights in f64 stay in f64. Errors: those of FindCheckpoint and of TokenizerOf.
  // INVALID_ARGUMENT: the model reads no text, or is not made for such a window.
  static absl::StatusOr<InferenceModel> Load(const Options& options, Use use,
                                             const Backend& backend);

  const Tokenizer& tokenizer() const { return *opened_.tokenizer; }
  const std::string& tokenizer_path() const { return opened_.path; }  // "": bytes.
  const std::string& checkpoint() const { return checkpoint_; }       // That was loaded.
  int64_t window() const { return window_; }

  // Replays the whole window for these tokens, of which there are 1 to window().
  void Run(std::span<const int32_t> tokens);
  // What may follow the token `i` of the last Run: a logit for each id of the model's vocabulary,
  // which may have more ids than the tokenizer.
  std::span<const float> Logits(size_t i) const;
  // -log(probability) that `id` follows the token `i` of the last Run, in nats.
  double Surprise(size_t i, int32_t id) const;

  // What may follow a text, of which the model sees the last tokens: all if the window holds them,
  // and else as GrowingText::Read says. Models with recurrent layers, whose state is not kept, read
  // the last window() tokens anew each time.
  std::span<const float> After(std::span<const int32_t> text);

 private:
  void ReadLogits(const std::string& output);

  OpenedTokenizer opened_;
  std::string checkpoint_;
  std::unique_ptr<Executable> executable_;
  std::optional<GrowingText> growing_;  // If the program has a cache.
  int64_t window_ = 0;
  size_t vocab_ = 0;           // Of the model.
  size_t columns_ = 0;         // Those after the vocabulary are padding.
  std::vector<float> logits_;  // [tokens of the last replay, columns]
};

}  // namespace trainyard
