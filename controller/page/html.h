// HTML that is safe by construction. Only literals of this program, such as "<td>"_html, become
// markup. All other text is escaped, whoever wrote it, so it shows as plain text between tags and
// inside quoted attributes.
//
//   html << "<td title=\""_html << job.name << "\">"_html << job.progress.step << "</td>"_html;

#pragma once

#include <concepts>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainyard::controller {

class Markup {
 public:
  absl::string_view text() const { return text_; }

 private:
  friend consteval Markup operator""_html(const char* text, size_t size);
  consteval explicit Markup(absl::string_view text) : text_(text) {}
  absl::string_view text_;
};

// Takes literals alone.
consteval Markup operator""_html(const char* text, size_t size) {
  return Markup(absl::string_view(text, size));
}

// Not thread-safe.
class Html {
 public:
  Html& operator<<(Markup markup) {
    absl::StrAppend(&text_, markup.text());
    return *this;
  }
  Html& operator<<(const Html& part) {
    text_ += part.text_;
    return *this;
  }
  // Replaces bytes that are not valid UTF-8 by '?', and shows control characters as \x1b.
  Html& operator<<(absl::string_view text);
  template <std::integral Number>
  Html& operator<<(Number number) {
    absl::StrAppend(&text_, number);
    return *this;
  }

  bool empty() const { return text_.empty(); }
  const std::string& text() const& { return text_; }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

// Encodes a text as a value in a query: "a b&c" becomes "a%20b%26c".
std::string UrlValue(absl::string_view text);

}  // namespace trainyard::controller
