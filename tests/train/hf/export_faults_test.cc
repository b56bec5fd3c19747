// Proves that an export makes the whole directory, or nothing, whichever call to the file system
// fails or is the last one before a kill or a power cut: of a model in several shards with a
// tokenizer, of an adapter alone, and of an adapter merged into its base.
// Bug it must catch: a file that is not synced before the directory gets its name, and a directory
// that is left half-written beside the target.

#include <gmock/gmock.h>

#include <filesystem>

#include "common/files.h"
#include "tests/models/hf/files.h"
#include "tests/train/checkpoint/faulty_storage.h"
#include "train/hf/export.h"
#include "train/hf/import.h"
#include "train/hf/import_adapter.h"

namespace trainyard::testing {
namespace {

using ::testing::Contains;
using ::testing::Key;
using testing_checkpoint::Fault;
using testing_checkpoint::FaultyStorage;

struct ExportFaultsCase {
  const char* name;
  bool adapted, merge;
  const char* file;  // Which such a directory has.
  friend void PrintTo(const ExportFaultsCase& c, std::ostream* out) { *out << c.name; }
};

// The bytes of each file of a directory, by its name.
std::map<std::string, std::string> FilesOf(const std::string& directory) {
  const auto names = ListDirectory(directory);
  CHECK(names.ok()) << names.status();
  std::map<std::string, std::string> files;
  for (const std::string& name : *names) {
    files[name] = *ReadFile(absl::StrCat(directory, "/", name));
  }
  return files;
}

class ExportFaults : public ::testing::TestWithParam<ExportFaultsCase> {
 protected:
  // A whole model that came with a tokenizer, or an adapter beside its base.
  Checkpoint Source() const {
    const std::string from = scratch_ + "/from", to = scratch_ + "/imported";
    if (GetParam().adapted) {
      const auto imported =
          ImportAdapter({.from = SourceFile("tests/golden/peft/llama_dora"), .to = to},
                        SourceFile("tests/golden/hf/llama"));
      CHECK(imported.ok()) << imported.status();
    } else {
      std::filesystem::copy(SourceFile("tests/golden/hf/llama_tied"), from);
      WriteBytes(from + "/tokenizer.json", "{}");
      const auto imported = ImportHf({from, to});
      CHECK(imported.ok()) << imported.status();
    }
    auto found = FindCheckpoint(to);
    CHECK(found.ok()) << found.status();
    return *std::move(found->checkpoint);
  }

  absl::StatusOr<Exported> Export(const Checkpoint& source, const std::string& to,
                                  Storage& storage) const {
    return ExportHf(source, {.to = to, .merge = GetParam().merge, .shard_bytes = 9000}, storage);
  }

  const std::string scratch_ = EmptyDirectory(GetParam().name);
};

TEST_P(ExportFaults, LeaveAWholeDirectoryOrNone) {
  const Checkpoint source = Source();
  ASSERT_TRUE(Export(source, scratch_ + "/undisturbed", LocalStorage()).ok());
  const auto wanted = FilesOf(scratch_ + "/undisturbed");
  ASSERT_THAT(wanted, Contains(Key(GetParam().file)));
  const std::string beside = scratch_ + "/beside", graveyard = scratch_ + "/graveyard";
  const std::string to = beside + "/to";
  for (const Fault fault : {Fault::kError, Fault::kKill, Fault::kPowerCut}) {
    bool hit = true;
    for (int at = 1; hit; ++at) {
      SCOPED_TRACE(absl::StrCat("fault ", int(fault), " at ", at));
      for (const std::string& path : {beside, graveyard}) {
        std::filesystem::remove_all(path);
        std::filesystem::create_directories(path);
      }
      FaultyStorage storage(fault, at, uint64_t(at), graveyard);
      const auto exported = Export(source, to, storage);
      if (fault == Fault::kPowerCut) storage.LosePower();
      hit = storage.hit();
      ASSERT_LT(at, 400);
      if (Exists(to)) {
        EXPECT_EQ(FilesOf(to), wanted);
        continue;
      }
      EXPECT_TRUE(hit && !exported.ok());
      // After an error that lets the program go on, nothing is left beside the target either.
      EXPECT_LE(ListDirectory(beside)->size(), fault == Fault::kError ? 0u : 1u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Exports, ExportFaults,
    ::testing::Values(ExportFaultsCase{"model", false, false, "model.safetensors.index.json"},
                      ExportFaultsCase{"adapter", true, false, "adapter_model.safetensors"},
                      ExportFaultsCase{"merged", true, true, "model.safetensors.index.json"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trainyard::testing
