// What models of text declare: they read token ids, and are trained by the cross-entropy of each
// next one.

#pragma once

#include <cstdint>
#include <vector>

#include "models/model.h"

namespace trainyard {

// Whose product the logits are: of [tokens, vocab], which a training program never has at once.
struct Projection {
  Value x;       // What the head makes of the last block's.
  Value weight;  // [vocab, width], divided over the tensor ranks.
};

// "tokens" and "targets", integers by token below `vocab`; a target of -1 is not counted.
std::vector<InputSpec> TokenInputs(int64_t vocab);

class LanguageModel : public Model {
 public:
  explicit LanguageModel(int64_t vocab) : vocab_(vocab) {}

  // tokens i32 [T], whose positions are t % sequence.
  virtual Carried Embed(Recorder& recorder, Value tokens) const = 0;
  virtual Projection Head(Recorder& recorder, const Carried& carried) const = 0;

  std::vector<InputSpec> inputs() const final { return TokenInputs(vocab_); }
  Carried Start(Recorder& recorder) const final;
  void Loss(Recorder& recorder, const Carried& carried) const final;
  // "logits" [tokens, vocab].
  void KeepOutputs(Recorder& recorder, const Carried& carried) const final;

 private:
  const int64_t vocab_;
};

}  // namespace trainyard
