// Goes on with prompts, several at once.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "train/generate/continuation.h"
#include "train/generate/inference_model.h"

namespace trainyard {

// What a model wrote.
struct WrittenText {
  std::string text = {};
  int64_t tokens = 0;
  Ending ending = Ending::kLength;
};

// Whether prompts draw their tokens from the same uniform numbers. If so, the number of each prompt
// is ContinuationOptions::number, and otherwise this and the prompt's place among the others.
enum class Draws : uint8_t { kOwn, kSame };

// Calls `done` for each prompt, in their order, once its text and those before it have ended. The
// model goes on with model.texts() of them at once; where a text ends, the next prompt takes its
// place. A text does not depend on the prompts beside it, nor on how many there are at once, as far
// as the products of the device round a row alike among any number of rows. Errors: those of
// Continuation.
absl::Status ContinuePrompts(InferenceModel& model, std::vector<EncodedPrompt> prompts,
                             const ContinuationOptions& options, Draws draws,
                             const std::function<void(size_t, const WrittenText&)>& done);

}  // namespace trainyard
