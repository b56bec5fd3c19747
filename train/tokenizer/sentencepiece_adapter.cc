#include "train/tokenizer/sentencepiece_adapter.h"

#include <sentencepiece_processor.h>

#include <cstdint>

namespace trainyard {

namespace {

// Returns the number at the front of the bytes, in the wire format of protobuf, and drops it.
uint64_t TakeNumber(const char*& at, const char* end) {
  uint64_t number = 0;
  for (int shift = 0; at < end && shift < 64; shift += 7) {
    const uint8_t byte = uint8_t(*at++);
    number |= uint64_t(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  return number;
}

// Whether a model that the library has read has both specs, which follow its pieces. The library
// takes defaults for a model that was cut before them, and so finds other ids.
bool HasSpecs(const char* at, size_t size) {
  const char* const end = at + size;
  bool trainer = false, normalizer = false;
  while (at < end) {
    const uint64_t key = TakeNumber(at, end), type = key & 7;
    uint64_t bytes = type == 5 ? 4 : 8;
    if (type == 0) TakeNumber(at, end), bytes = 0;
    if (type == 2) bytes = TakeNumber(at, end);
    if (bytes > uint64_t(end - at)) return false;
    at += bytes;
    trainer |= key == (2 << 3 | 2);
    normalizer |= key == (3 << 3 | 2);
  }
  return trainer && normalizer;
}

// Returns what the library says is wrong. Its messages may begin with a place in its sources and
// the condition that failed there, "INTERNAL: src/x.cc(86) [a > 0] ", which tells nobody anything.
std::string WhatIsWrong(const sentencepiece::util::Status& status) {
  const std::string text = status.ToString();
  if (text.find(".cc(") == text.npos) return text;
  const size_t end = text.rfind("] ");
  const std::string rest = end == text.npos ? "" : text.substr(end + 2);
  return rest.empty() ? "the library cannot read them" : rest;
}

}  // namespace

struct SentencePieceModel::State {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceModel::SentencePieceModel() : state_(std::make_unique<State>()) {}
SentencePieceModel::~SentencePieceModel() = default;

std::string SentencePieceModel::Load(const char* bytes, size_t size) {
  const auto status = state_->processor.LoadFromSerializedProto({bytes, size});
  if (!status.ok()) return WhatIsWrong(status);
  return HasSpecs(bytes, size) ? "" : "no trainer_spec or no normalizer_spec: the model is cut";
}

std::string SentencePieceModel::Encode(const char* text, size_t size, std::vector<int>& ids) const {
  const auto status = state_->processor.Encode({text, size}, &ids);
  return status.ok() ? "" : WhatIsWrong(status);
}

std::string SentencePieceModel::Decode(const std::vector<int>& ids, std::string& text) const {
  const auto status = state_->processor.Decode(ids, &text);
  return status.ok() ? "" : WhatIsWrong(status);
}

int SentencePieceModel::size() const { return state_->processor.GetPieceSize(); }

bool SentencePieceModel::IsControl(int id) const { return state_->processor.IsControl(id); }

std::string SentencePieceModel::TextOf(int id) const { return state_->processor.IdToPiece(id); }

int SentencePieceModel::Find(const std::string& token) const {
  const int id = state_->processor.PieceToId(token);
  return TextOf(id) == token ? id : -1;  // The library returns unk for what it does not have.
}

}  // namespace trainyard
