// The base class of models of text. Such a model reads token ids and is trained with the
// cross-entropy of the next token.

#pragma once

#include <cstdint>
#include <vector>

#include "models/model.h"

namespace trainyard {

// The operands of the product that gives the logits. A training program never holds the whole
// product, [tokens, vocab], in memory.
struct Projection {
  Value x;       // The head's result from the last block's value.
  Value weight;  // [vocab, width], with padding, divided over the tensor ranks.
};

// The target of a token whose prediction is not counted in the loss.
inline constexpr int32_t kNotCounted = -1;

// "tokens" and "targets", integers by token below `vocab`; a target may be kNotCounted.
std::vector<InputSpec> TokenInputs(int64_t vocab);

class LanguageModel : public Model {
 public:
  explicit LanguageModel(int64_t vocab) : vocab_(vocab) {}

  // tokens is i32 [T]. The position of token t is t % sequence.
  virtual Carried Embed(Recorder& recorder, Value tokens) const = 0;
  virtual Projection Head(Recorder& recorder, const Carried& carried) const = 0;

  std::vector<InputSpec> inputs() const final { return TokenInputs(vocab_); }
  Carried Start(Recorder& recorder) const final;
  void Loss(Recorder& recorder, const Carried& carried) const final;
  // Keeps "logits" [tokens, vocab and padding]. Columns of padding mean nothing.
  void KeepOutputs(Recorder& recorder, const Carried& carried) const final;

 private:
  const int64_t vocab_;
};

}  // namespace trainyard
