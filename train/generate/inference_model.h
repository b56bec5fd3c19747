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
#include "train/generate/growing_texts.h"
#include "train/generate/model_part.h"
#include "train/generate/tensor_gang.h"
#include "train/tokenizer/open_tokenizer.h"

namespace trainyard {

class InferenceModel {
 public:
  struct Options {
    std::string checkpoint;  // A checkpoint, or a job's checkpoint.directory.
    int64_t window = 0;      // Tokens that the model sees at once; 0: as in training.
    int threads = 1;
    // How many texts grow at once, at most kMostTexts.
    int64_t texts = 1;
    // Whether fewer texts do if the machine has no memory for so many.
    bool fewer_texts = false;
    // Memory that the model may take on a CPU, in bytes; 0: what the machine has available, and
    // half of this if fewer_texts. On a GPU: what is free.
    uint64_t memory_bytes = 0;
    // The ranks that hold the model together, of which this is rank 0; the others must call
    // FollowLeader. Must outlive the model. Null: this rank is alone.
    TensorGang* gang = nullptr;
  };
  static constexpr int64_t kMostTexts = 1024;

  // What the model will be asked: Run for texts that are known, or Read for texts that grow.
  enum class Use { kWhole, kGrowing };

  // Loads the newest good checkpoint, and logs why newer ones were refused. Weights are widened to
  // f32; weights in f64 stay in f64. On a CPU, a model for kGrowing keeps those that training read
  // in bf16 as they are (RunState::bf16_weights). Errors: those of FindCheckpoint and TokenizerOf.
  // INVALID_ARGUMENT: the model reads no text, is not made for such a window, or has weights in f64
  // and the backend is a GPU. FAILED_PRECONDITION: so many texts do not fit into memory; of a CPU
  // the message has how many do. RESOURCE_EXHAUSTED: one text does not fit. Of a gang: those of
  // ModelPart::Load. May throw DeviceError.
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

  // How many texts Read takes at once.
  size_t texts() const { return texts_; }
  // Reads what each text has beyond those of the last call, which were at the same places. An empty
  // text is none. The model sees the last tokens of a text: all if the window holds them, and else
  // as GrowingTexts::Read says. Of texts() of more than one, some may need further calls until
  // IsRead. Only of a model that was loaded for kGrowing.
  void Read(std::span<const std::span<const int32_t>> texts);
  // Whether the text at this place was read to its end by the last Read.
  bool IsRead(size_t place) const { return is_read_[place]; }
  // What may follow the text at this place, if it is read.
  std::span<const float> After(size_t place) const;
  // Says that the next text at this place is another one. As Read.
  void Forget(size_t place);

 private:
  OpenedTokenizer opened_;
  std::string checkpoint_;
  std::unique_ptr<ModelPart> part_;
  std::optional<GrowingTexts> growing_;  // For Use::kGrowing.
  int64_t window_ = 0;
  size_t vocab_ = 0;    // Of the model.
  size_t columns_ = 0;  // Those after the vocabulary are padding.
  size_t texts_ = 1;
  std::vector<float> logits_;  // [rows read last, columns]
  std::vector<float> after_;   // [texts, columns]
  std::vector<bool> is_read_;  // [texts]
};

}  // namespace trainyard
