// The only file that uses yaml-cpp, which throws. It uses the event interface and not the node
// tree, so that depth and the size of expanded aliases are bounded while the document is read.

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/text.h"
#include "train/config/yaml.h"

namespace trainyard {
namespace {

int Depth(const YamlNode& node) {
  int below = 0;
  for (const YamlNode& item : node.items) below = std::max(below, Depth(item));
  for (const auto& [key, value] : node.fields) below = std::max(below, Depth(value));
  return below + 1;
}

// Builds the tree from yaml-cpp's events. `open_` is the path from the root to the collection being
// filled.
class TreeBuilder final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Complete(mark, anchor, Node(YamlNode::Kind::kNull, mark));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) Fail(mark, "an alias inside of what it stands for");
    Count(mark, CountNodes(it->second));
    if (int(open_.size()) + Depth(it->second) > kMaxYamlDepth) FailDepth(mark);
    Place(mark, it->second);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // yaml-cpp turns \N and \_, which stand for U+0085 and U+00A0, into one byte each.
    if (ValidUtf8(value) != value) Fail(mark, "the escape \\N or \\_; write \\u0085 or \\u00A0");
    YamlNode node = Node(YamlNode::Kind::kScalar, mark);
    node.text = value;
    node.quoted = tag == "!";
    if (tag != "!" && tag != "?" && !tag.empty()) Fail(mark, absl::StrCat("the tag ", tag));
    if (!node.quoted && (value == "~" || value == "null" || value == "Null" || value == "NULL")) {
      node = Node(YamlNode::Kind::kNull, mark);
    }
    Complete(mark, anchor, std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, anchor, YamlNode::Kind::kSequence);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, anchor, YamlNode::Kind::kMapping);
  }
  void OnMapEnd() override { Close(); }

  YamlNode TakeRoot() { return std::move(root_); }

 private:
  struct OpenCollection {
    YamlNode node;
    YAML::anchor_t anchor;
    YAML::Mark mark;
    bool has_key = false;
    std::string key;
    int key_line = 0;
  };

  [[noreturn]] static void Fail(const YAML::Mark& mark, const std::string& what) {
    throw YAML::ParserException(mark, what);
  }
  [[noreturn]] static void FailDepth(const YAML::Mark& mark) {
    Fail(mark, absl::StrCat("nested deeper than ", kMaxYamlDepth, " levels"));
  }

  static YamlNode Node(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    return node;
  }

  void Count(const YAML::Mark& mark, size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMaxYamlNodes) {
      Fail(mark, absl::StrCat("more than ", kMaxYamlNodes, " values, aliases expanded"));
    }
  }

  void Open(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode::Kind kind) {
    Count(mark, 1);
    if (!open_.empty() && open_.back().node.kind == YamlNode::Kind::kMapping &&
        !open_.back().has_key) {
      Fail(mark, "a key that is not plain text");
    }
    if (int(open_.size()) >= kMaxYamlDepth) FailDepth(mark);
    open_.push_back({Node(kind, mark), anchor, mark, false, ""});
  }

  void Close() {
    OpenCollection done = std::move(open_.back());
    open_.pop_back();
    if (done.anchor != YAML::NullAnchor) anchors_[done.anchor] = done.node;
    Place(done.mark, std::move(done.node));
  }

  void Complete(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode node) {
    Count(mark, 1);
    if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
    Place(mark, std::move(node));
  }

  // Puts a finished node into the innermost open collection: as an item, as the next key, or as the
  // value of that key.
  void Place(const YAML::Mark& mark, YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    OpenCollection& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kSequence) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.has_key) {
      node.line = parent.key_line;
      parent.node.fields.push_back({std::move(parent.key), std::move(node)});
      parent.has_key = false;
    } else {
      if (node.kind != YamlNode::Kind::kScalar) Fail(mark, "a key that is not plain text");
      // Keys are compared one by one, so their number is bounded.
      if (parent.node.fields.size() >= kMaxYamlKeys) {
        Fail(mark, absl::StrCat("more than ", kMaxYamlKeys, " keys in one mapping"));
      }
      if (parent.node.Find(node.text) != nullptr) {
        Fail(mark, absl::StrCat("the key \"", absl::CEscape(node.text.substr(0, 60)),
                                "\" a second time"));
      }
      parent.key_line = node.line;
      parent.key = std::move(node.text);
      parent.has_key = true;
    }
  }

  YamlNode root_;
  std::vector<OpenCollection> open_;
  std::map<YAML::anchor_t, YamlNode> anchors_;
  size_t nodes_ = 0;
};

// What a text that begins with '*' looks like to YAML, as a pattern of layers or of names does.
bool IsAboutAlias(absl::string_view what) {
  for (const char* message : {YAML::ErrorMsg::UNKNOWN_ANCHOR, YAML::ErrorMsg::ALIAS_NOT_FOUND,
                              YAML::ErrorMsg::CHAR_IN_ALIAS}) {
    if (absl::StartsWith(what, message)) return true;
  }
  return false;
}

absl::Status BrokenYaml(const YAML::Mark& mark, std::string what) {
  if (IsAboutAlias(what)) {
    absl::StrAppend(&what, "; a text that begins with '*' needs quotes, in a shell within its own");
  }
  // yaml-cpp quotes the text whatever it contains, and may quote one byte of a multi-byte
  // character.
  std::replace_if(
      what.begin(), what.end(), [](char c) { return absl::ascii_iscntrl(c); }, '?');
  return absl::InvalidArgumentError(
      absl::StrCat("line ", mark.line + 1, ", column ", mark.column + 1, ": ", ValidUtf8(what)));
}

}  // namespace

size_t CountNodes(const YamlNode& node) {
  size_t count = 1;
  for (const YamlNode& item : node.items) count += CountNodes(item);
  for (const auto& [key, value] : node.fields) count += CountNodes(value);
  return count;
}

const YamlNode* YamlNode::Find(absl::string_view key) const {
  for (const auto& [name, value] : fields) {
    if (name == key) return &value;
  }
  return nullptr;
}

const char* Name(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar:
      return "a single value";
    case YamlNode::Kind::kSequence:
      return "a list";
    case YamlNode::Kind::kMapping:
      return "a mapping";
  }
  return "?";
}

absl::StatusOr<YamlNode> ParseYaml(absl::string_view text) {
  if (text.size() > kMaxYamlBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "line 1, column 1: wanted at most ", kMaxYamlBytes, " bytes of YAML, found ", text.size()));
  }
  const auto wrong_at = [&](size_t byte, absl::string_view what) {
    const auto line = 1 + std::count(text.begin(), text.begin() + ptrdiff_t(byte), '\n');
    return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", what));
  };
  if (const size_t zero = text.find('\0'); zero != absl::string_view::npos) {
    return wrong_at(zero, "a zero byte");
  }
  // No message could contain such text.
  const std::string valid = ValidUtf8(text);
  const auto other = std::mismatch(text.begin(), text.end(), valid.begin()).first;
  if (other != text.end()) {
    return wrong_at(size_t(other - text.begin()), "a byte that is not UTF-8");
  }
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder;
    if (!parser.HandleNextDocument(builder)) {
      return absl::InvalidArgumentError("line 1, column 1: wanted a YAML document, found none");
    }
    YamlNode root = builder.TakeRoot();
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", second.TakeRoot().line, ", column 1: a second document"));
    }
    return root;
  } catch (const YAML::Exception& error) {
    return BrokenYaml(error.mark, error.msg);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("line 1, column 1: ", error.what()));
  }
}

}  // namespace trainyard
