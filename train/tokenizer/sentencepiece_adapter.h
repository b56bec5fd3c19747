// What is used of the library SentencePiece. Its header and Abseil's do not go into one source,
// because it has a type of its own for absl::string_view.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace trainyard {

// Immutable once it is loaded, and thread-safe.
class SentencePieceModel {
 public:
  SentencePieceModel();
  ~SentencePieceModel();

  // Returns an empty text, or what is wrong with the bytes.
  std::string Load(const char* bytes, size_t size);

  // All of them return an empty text, or what went wrong.
  std::string Encode(const char* text, size_t size, std::vector<int>& ids) const;
  std::string Decode(const std::vector<int>& ids, std::string& text) const;

  int size() const;
  bool IsControl(int id) const;  // <s>, </s>: no text becomes such an id.
  std::string TextOf(int id) const;
  int Find(const std::string& token) const;  // -1: there is no such token.

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainyard
