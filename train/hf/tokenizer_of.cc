#include "train/hf/tokenizer_of.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "train/hf/carried_files.h"
#include "train/tokenizer/byte_tokenizer.h"
#include "train/tokenizer/open_tokenizer.h"

namespace trainyard {

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(const std::string& checkpoint,
                                                       int64_t model_vocab) {
  ASSIGN_OR_RETURN(const std::optional<HfOrigin> origin, FindOrigin(checkpoint));
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (!origin || origin->files.count(name) == 0) continue;
    ASSIGN_OR_RETURN(OpenedTokenizer opened, OpenTokenizer(absl::StrCat(origin->path, "/", name)));
    RETURN_IF_ERROR(CheckVocabulary(opened, model_vocab));
    return std::move(opened.tokenizer);
  }
  if (model_vocab == ByteTokenizer().vocab()) return std::make_unique<ByteTokenizer>();
  return absl::InvalidArgumentError(
      absl::StrCat(checkpoint,
                   ": wanted a model of byte tokens, vocab 256, or one that was "
                   "imported with its tokenizer.json or tokenizer.model; found vocab ",
                   model_vocab, ", and no tokenizer"));
}

}  // namespace trainyard
