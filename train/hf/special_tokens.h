// The ids of the tokens that begin and end texts, by which programs that read an export stop.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/tokenizer/tokenizer_files.h"

namespace trainyard {

// Sets bos_token_id and eos_token_id, where the object has these keys, to what the tokenizer's
// tokenizer_config.json and tokenizer.json say: null where they say nothing. A padding token of
// another tokenizer becomes null, too, in generation_config.json alone: in config.json it says
// which row of the embedding has no gradient.
//
// `imported` are the files of the imported model's tokenizer if it has the same vocabulary, and
// null otherwise. With the same vocabulary the object's ids mean the same tokens: they stay, unless
// the tokenizer names a token that the imported one does not name and the object does not have.
void SetSpecialTokens(const KeptFiles& tokenizer, const KeptFiles* imported, bool padding,
                      nlohmann::json& object);

// Sets them in the text of generation_config.json. What is no JSON object stays as it is.
std::string WithSpecialTokens(const KeptFiles& tokenizer, const KeptFiles* imported,
                              const std::string& generation_config);

}  // namespace trainyard
