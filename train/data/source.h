// The sources of data. Each source is a file in this folder and a line of the list below. The file
// declares the section of a job spec that chooses the source, what samples of it have, and how it
// is opened. All other code reads the declaration: specs and their checks, the job that ranks get,
// and the fingerprints of files. proto/trainyard/v1/data.proto declares what is legal for a field,
// which fields are paths, and what a change of them means to a run that goes on.

#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/violations.h"
#include "models/arch/fields.h"
#include "models/program/input.h"

namespace trainyard {

struct DataOptions;  // dataset.h
struct DataSource;
struct DataSplits;  // dataset.h

// A source, and the values of the fields of its section: the struct that the source declares.
class DataConfig {
 public:
  DataConfig() = default;  // No source was given, which Validate reports.
  template <typename Data>
  requires requires { Data::Source(); }
  DataConfig(Data data) : source_(&Data::Source()), data_(std::move(data)) {}  // NOLINT

  const DataSource* source() const { return source_; }  // Null: none was given.

  // Returns the source's struct. CHECKs that the struct is a Data.
  template <typename Data>
  Data& As() {
    Data* const data = std::any_cast<Data>(&data_);
    CHECK(data != nullptr) << "another source of data";
    return *data;
  }
  template <typename Data>
  const Data& As() const {
    return const_cast<DataConfig*>(this)->As<Data>();
  }

 private:
  const DataSource* source_ = nullptr;
  std::any data_;
};

// A row of a source's table of fields, without the member that holds the value.
struct SourceRule {
  // As in a spec. On the wire the names of a choice begin with this name, too: TOO_LONG_CUT.
  const char* name;
  // Of a text: the ends of the files that it names, behind the text. None: it is no path, or the
  // fingerprints of its files are taken elsewhere.
  std::vector<const char*> files = {""};
};

struct SourceField;
using SourceVisit = absl::FunctionRef<void(const SourceRule& rule, const SourceField& field)>;

// A list of sections.
struct SectionList {
  size_t size;
  std::function<void()> add;                               // Adds a section of defaults.
  std::function<void(size_t i, SourceVisit visit)> visit;  // Visits the fields of section i.
};

// A pointer to the member that holds a field's value, or what stands for it.
struct SourceField : std::variant<std::string*, double*, int64_t*, bool*, Choice, SectionList> {
  using variant::variant;
};

// An input that samples have.
struct DeliveredInput {
  InputSpec input;  // The limit is not used: a source keeps to the limit of the model.
  int rank = 0;     // Rank of a unit's shape. The sizes are known only once the files are open.
};

// Every token of a text that is read as bytes is one of these.
inline constexpr int64_t kByteVocabulary = 256;

// How conversations become tokens.
struct ChatFacts {
  std::string tokenizer;  // Empty: that of the imported model.
  std::string format;     // As --format of trainyard-tokenize, and the next.
  std::string date;
};

// What the checks of a job and its program must know of its data.
struct SourceFacts {
  std::vector<DeliveredInput> inputs;  // Without those that an option adds.
  // Share of the data that is held out for validation. Absent: the source can always validate.
  std::optional<double> validation_fraction = {};
  bool byte_tokens = false;            // Every token is a byte of a text.
  bool of_token_files = false;         // Tokens lie in files, which may say their tokenizer.
  bool reset_attention_mask = false;   // Samples have the input kDocumentBegins.
  bool packs = false;                  // They always have it.
  bool ends = false;                   // DataSplits::held_out is set.
  std::optional<ChatFacts> chat = {};  // Samples are conversations.
  // The options that decide which tokens of its files are read, as a text to compare.
  std::string reading = {};
};
std::vector<DeliveredInput> DeliveredTokens();  // The inputs of a language model.

struct DataSource {
  const char* name;      // The section of `data` that chooses it: "text".
  const char* example;   // What a message shows: "text: {path: ...}".
  DataConfig (*make)();  // With defaults.
  // The table of fields: calls visit(rule, field) for each, in the order of fields in files.
  void (*visit)(DataConfig& data, SourceVisit visit);
  SourceFacts (*facts)(const DataConfig& data);
  // Opens the data, as OpenData (dataset.h).
  absl::StatusOr<DataSplits> (*open)(const DataConfig& data, const DataOptions& options);
  // Adds the problems that no row describes. Null: there are none.
  void (*check)(const DataConfig& data, Violations& violations) = nullptr;
  // Returns the path of the tokenizer, for who knows a better one. Null: the source has none.
  std::string* (*tokenizer)(DataConfig& data) = nullptr;
};

// Calls X(Name) for each source, in the order in which messages list them. The file of its name
// defines NameSource().
// clang-format off
#define TRAINYARD_FOR_EACH_SOURCE(X) \
  X(Synthetic) \
  X(Text) \
  X(Indexed) \
  X(Arrays) \
  X(Blend) \
  X(Chat)
// clang-format on

#define TRAINYARD_DECLARE_SOURCE(Name) const DataSource& Name##Source();
TRAINYARD_FOR_EACH_SOURCE(TRAINYARD_DECLARE_SOURCE)
#undef TRAINYARD_DECLARE_SOURCE

std::span<const DataSource* const> DataSources();

// The path of the source's section in a spec: "data.text". There must be a source.
std::string SectionOf(const DataConfig& data);

// Returns what the source says; without a source, no inputs.
SourceFacts FactsOf(const DataConfig& data);

// Whether documents do not see each other: the data deliver DocumentBegins.
bool ResetsAttentionMask(const DataConfig& data);

// Adds a violation for each broken rule between fields of the data. Limits of numbers and paths are
// checked elsewhere (train/config/declared_values.h).
void ValidateData(const DataConfig& data, Violations& violations);

// The files that the data name.
struct NamedFiles {
  std::string field;  // "data.blend.datasets[1].prefix"
  std::string path;
  std::vector<const char*> files;  // As SourceRule.
};
std::vector<NamedFiles> FilesOf(const DataConfig& data);

// Returns the path of the tokenizer among the data's fields. Null: there is none.
std::string* TokenizerIn(DataConfig& data);
// Returns the field's path in a spec: "data.text.tokenizer_path". "": there is none.
std::string FieldOfTokenizer(const DataConfig& data);

}  // namespace trainyard
