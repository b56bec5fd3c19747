// A tokenizer: the first line is a text, and the rest the file. The second line of a .tiktoken is
// its name. Whatever is accepted encodes the text, and decodes what it has encoded.

#include <string>
#include <vector>

#include "common/check.h"
#include "tests/fuzz/input.h"
#include "train/tokenizer/sentencepiece_tokenizer.h"
#include "train/tokenizer/tiktoken.h"
#include "train/tokenizer/tokenizer_json.h"

namespace trainyard {
namespace {

absl::StatusOr<std::unique_ptr<Tokenizer>> Read(absl::string_view kind, absl::string_view bytes) {
  if (kind == "json") return ReadTokenizerJson(bytes);
  if (kind == "tekken") return ReadTekken(bytes);
  if (kind == "sentencepiece") return ReadSentencePiece(bytes);
  return ReadTiktoken(bytes, kind, TiktokenSize::kAny);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const absl::string_view kind = input.Line(), text = input.Line();
  const auto tokenizer = Read(kind, input.Rest());
  if (!tokenizer.ok()) {
    fuzz::CheckRefusal(tokenizer.status());
    return 0;
  }
  const auto encoder = (*tokenizer)->NewEncoder();
  std::vector<int32_t> ids;
  const absl::Status encoded = encoder->Encode(text, ids);
  if (!encoded.ok()) {
    fuzz::CheckRefusal(encoded);
    return 0;
  }
  for (const int32_t id : ids) CHECK(id >= 0 && id < (*tokenizer)->vocab()) << id;
  std::vector<int32_t> again;
  CHECK(encoder->Encode(text, again).ok() && again == ids) << ids.size();
  const auto decoded = (*tokenizer)->Decode(ids, Specials::kKeep);
  if (!decoded.ok()) fuzz::CheckRefusal(decoded.status());
  return 0;
}

}  // namespace trainyard
