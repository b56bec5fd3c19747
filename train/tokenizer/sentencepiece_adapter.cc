#include "train/tokenizer/sentencepiece_adapter.h"

#include <sentencepiece_processor.h>

namespace trainyard {

struct SentencePieceModel::State {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceModel::SentencePieceModel() : state_(std::make_unique<State>()) {}
SentencePieceModel::~SentencePieceModel() = default;

std::string SentencePieceModel::Load(const char* bytes, size_t size) {
  const auto status = state_->processor.LoadFromSerializedProto({bytes, size});
  return status.ok() ? "" : status.ToString();
}

std::string SentencePieceModel::Encode(const char* text, size_t size, std::vector<int>& ids) const {
  const auto status = state_->processor.Encode({text, size}, &ids);
  return status.ok() ? "" : status.ToString();
}

std::string SentencePieceModel::Decode(const std::vector<int>& ids, std::string& text) const {
  const auto status = state_->processor.Decode(ids, &text);
  return status.ok() ? "" : status.ToString();
}

int SentencePieceModel::size() const { return state_->processor.GetPieceSize(); }

bool SentencePieceModel::IsControl(int id) const { return state_->processor.IsControl(id); }

std::string SentencePieceModel::TextOf(int id) const { return state_->processor.IdToPiece(id); }

int SentencePieceModel::Find(const std::string& token) const {
  const int id = state_->processor.PieceToId(token);
  return TextOf(id) == token ? id : -1;  // The library returns unk for what it does not have.
}

}  // namespace trainyard
