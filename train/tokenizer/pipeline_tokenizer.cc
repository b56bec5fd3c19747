#include "train/tokenizer/pipeline_tokenizer.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"

namespace trainyard {

class PipelineEncoder final : public Encoder {
 public:
  explicit PipelineEncoder(const PipelineTokenizer& tokenizer)
      : tokenizer_(tokenizer), words_(*tokenizer.parts_.bpe) {}

  absl::Status Encode(absl::string_view text, std::vector<int32_t>& ids) override {
    if (text.size() > kMostBytes) {
      return absl::OutOfRangeError(
          absl::StrCat("wanted a text of less than 2 GiB, found ", text.size(), " bytes"));
    }
    if (!IsUtf8(text)) {
      valid_ = ReplaceMalformed(text);
      text = valid_;
    }
    tokenizer_.in_raw_text_.Cut(text, pieces_);
    for (const AddedPiece& piece : pieces_) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else {
        RETURN_IF_ERROR(EncodePiece(PartOf(text, piece), piece.range.begin == 0, ids));
      }
    }
    return absl::OkStatus();
  }

 private:
  static absl::string_view PartOf(absl::string_view text, const AddedPiece& piece) {
    return text.substr(piece.range.begin, piece.range.end - piece.range.begin);
  }

  // `begins`: the piece is the beginning of the text.
  absl::Status EncodePiece(absl::string_view text, bool begins, std::vector<int32_t>& ids) {
    const PipelineParts& parts = tokenizer_.parts_;
    ASSIGN_OR_RETURN(text, parts.normalizer.Apply(text, normalized_));
    tokenizer_.in_normalized_text_.Cut(text, inner_pieces_);
    for (const AddedPiece& piece : inner_pieces_) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
        continue;
      }
      RETURN_IF_ERROR(
          parts.pre_tokenizer.Cut(PartOf(text, piece), begins && piece.range.begin == 0, memory_));
      for (const absl::string_view word : memory_.words) {
        if (word.size() > kMostBytes) return TooLong(kMostBytes);
        words_.Encode(word, ids);
      }
    }
    return absl::OkStatus();
  }

  static constexpr size_t kMostBytes = std::numeric_limits<int32_t>::max();

  const PipelineTokenizer& tokenizer_;
  WordEncoder words_;
  std::string valid_, normalized_;
  std::vector<AddedPiece> pieces_, inner_pieces_;
  PreTokenizer::Memory memory_;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> PipelineTokenizer::Create(PipelineParts parts) {
  std::unique_ptr<PipelineTokenizer> tokenizer(new PipelineTokenizer(std::move(parts)));
  const PipelineParts& its = tokenizer->parts_;
  tokenizer->prefix_ = its.prefix;
  tokenizer->suffix_ = its.suffix;
  for (const AddedToken& token : its.unseen) tokenizer->special_.insert(token.id);
  for (const AddedToken& token : its.verbatim) {
    tokenizer->in_normalized_text_.Add(token.content, token);
  }
  std::string memory;
  // The first token of a text counts, and special ones come first.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : its.added) {
      if (token.special != special) continue;
      if (special) tokenizer->special_.insert(token.id);
      if (!token.normalized) {
        tokenizer->in_raw_text_.Add(token.content, token);
        continue;
      }
      ASSIGN_OR_RETURN(const absl::string_view text, its.normalizer.Apply(token.content, memory));
      tokenizer->in_normalized_text_.Add(text, token);
      if (text != token.content) tokenizer->normalized_[token.id] = std::string(text);
    }
  }
  return tokenizer;
}

std::unique_ptr<Encoder> PipelineTokenizer::NewEncoder() const {
  return std::make_unique<PipelineEncoder>(*this);
}

absl::StatusOr<std::string> PipelineTokenizer::Decode(std::span<const int32_t> ids,
                                                      Specials specials) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const std::string* const token = parts_.tokens.TextOf(id);
    if (token == nullptr) {
      return absl::OutOfRangeError(absl::StrCat("wanted ids of tokens, 0 to ", vocab() - 1,
                                                ", found ", id, ", which no token has"));
    }
    if (specials == Specials::kSkip && special_.count(id) > 0) continue;
    const auto normalized = normalized_.find(id);
    tokens.push_back(normalized == normalized_.end() ? *token : normalized->second);
  }
  return parts_.decoder.Decode(std::move(tokens));
}

}  // namespace trainyard
