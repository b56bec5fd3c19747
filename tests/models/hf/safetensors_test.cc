// Proves that the reader of safetensors reads what the public implementation writes (the files of
// tests/golden/make_safetensors.py), and refuses every damaged or malicious header by tensor.
#include "models/hf/safetensors.h"

#include <array>

#include "gmock/gmock.h"
#include "tests/models/hf/files.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SafetensorsTest, ReadsAllTypesOfThePublicImplementation) {
  const auto file =
      SafetensorsFile::Open(SourceFile("tests/golden/safetensors/types/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors().size(), 15u);
  for (const HfDType dtype :
       {HfDType::kBool, HfDType::kU8, HfDType::kI8, HfDType::kI16, HfDType::kU16, HfDType::kF16,
        HfDType::kI32, HfDType::kU32, HfDType::kF32, HfDType::kI64, HfDType::kU64, HfDType::kF64}) {
    const SafetensorsTensor& tensor = file->tensors().at(Name(dtype));
    EXPECT_EQ(tensor.dtype, dtype);
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(tensor.bytes, 6 * SizeOf(dtype));
  }
  EXPECT_TRUE(file->tensors().at("scalar").shape.empty());
  EXPECT_EQ(file->tensors().at("empty").bytes, 0u);
  EXPECT_EQ(file->tensors().at("größe/λ").bytes, 1u);

  std::array<float, 4> floats = {};
  const SafetensorsTensor& tensor = file->tensors().at("F32");
  ASSERT_TRUE(file->Read(tensor, 4, floats.data(), sizeof(floats)).ok());
  EXPECT_EQ(floats, (std::array<float, 4>{1, 2, 3, 4}));
  std::array<int64_t, 6> integers = {};
  ASSERT_TRUE(file->Read(file->tensors().at("I64"), 0, integers.data(), sizeof(integers)).ok());
  EXPECT_EQ(integers, (std::array<int64_t, 6>{0, 1, 2, 3, 4, 5}));
}

TEST(SafetensorsTest, ReadsWhatItWrites) {
  const std::vector<SafetensorsEntry> entries = {{"b", HfDType::kBF16, {3}},
                                                 {"a \"quoted\"", HfDType::kF64, {2, 1}},
                                                 {"none", HfDType::kF32, {0, 5}}};
  const std::string header = SafetensorsHeader(entries), path = EmptyDirectory("") + "/f";
  EXPECT_EQ(header.size() % 8, 0u);
  WriteBytes(path, header + std::string(6 + 16, 'x'));
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  for (const SafetensorsEntry& entry : entries) {
    EXPECT_EQ(file->tensors().at(entry.name).dtype, entry.dtype);
    EXPECT_EQ(file->tensors().at(entry.name).shape, entry.shape);
  }
  EXPECT_EQ(file->tensors().at("a \"quoted\"").begin, 6u);
}

// Expects that the reader refuses `file` with a message that has all of `parts`.
void ExpectFileRefused(const std::string& file, const std::vector<std::string>& parts) {
  const std::string path = EmptyDirectory("") + "/file.safetensors";
  WriteBytes(path, file);
  const auto opened = SafetensorsFile::Open(path);
  ASSERT_FALSE(opened.ok()) << file;
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kDataLoss);
  for (const std::string& part : parts) EXPECT_THAT(opened.status().message(), HasSubstr(part));
  EXPECT_THAT(opened.status().message(), HasSubstr(path));
}

std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return absl::StrCat(R"({"w": {"dtype": )", dtype, R"(, "shape": )", shape,
                      R"(, "data_offsets": )", offsets, "}}");
}

TEST(SafetensorsTest, RefusesFilesThatAreTooShort) {
  ExpectFileRefused("1234567", {"too short"});
  ExpectFileRefused(Safetensors("{}", "").substr(0, 9),
                    {"header of at most 1 bytes, found one of 2"});
  ExpectFileRefused(std::string(8, '\xff') + "{}", {"18446744073709551615", "Git LFS"});
  const std::string header = One("\"F32\"", "[2]", "[0, 8]");
  ExpectFileRefused(Safetensors(header, "1234567"),
                    {"\"w\"", "up to 7, where the file ends", "found 8"});
  ExpectFileRefused(Safetensors(header, "123456789"), {"wanted 8 bytes of tensors, found 9"});
  // All of the file's bytes are said to be header. None of them is read.
  const std::string path = EmptyDirectory("long") + "/file.safetensors";
  WriteBytes(path, std::string("\0\0\0\x08\0\0\0\0", 8));
  std::filesystem::resize_file(path, 8 + (1 << 27));
  EXPECT_THAT(SafetensorsFile::Open(path).status().message(),
              HasSubstr("a header of at most 100000000 bytes, found one of 134217728"));
  // A header of 2^60 bytes.
  ExpectFileRefused(std::string("\0\0\0\0\0\0\0\x10", 8) + "{}", {"1152921504606846976"});
}

TEST(SafetensorsTest, RefusesTextThatIsNoHeader) {
  for (const std::string text : {"", "[]", "null", "{", "{}x", " {}", "{\"a\": \"\xff\"}",
                                 R"({"w": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]},
            "w": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})"}) {
    ExpectFileRefused(Safetensors(text, ""), {"wanted", "JSON", "header"});
  }
  ExpectFileRefused(Safetensors("{\"a\":" + std::string(100'000, '['), ""),
                    {"the header: wanted JSON, found more than 64 levels"});
  ExpectFileRefused(Safetensors(R"({"__metadata__": {"format": 1}})", ""), {"__metadata__"});
  ExpectFileRefused(Safetensors(R"({"w": 1})", ""), {"\"w\"", "the keys dtype"});
  ExpectFileRefused(
      Safetensors(R"({"w": {"dtype": "U8", "shape": [], "data_offsets": [0, 1], "x": 1}})", "1"),
      {"\"w\"", "the keys dtype"});
}

// Bug it must catch: a reader that walks through all tensors for each tensor. It took 38 s for
// 40,000, and would take half an hour here, which is beyond the test's limit.
TEST(SafetensorsTest, ReadsAHeaderOfManyTensors) {
  constexpr int kTensors = 300'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i) {
    absl::StrAppend(&header, "\"layer.", i, R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i,
                    ",", i + 1, "]},");
  }
  const std::string again =
      header + R"("layer.7":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  header.back() = '}';
  const auto tensors = ParseSafetensorsHeader(header, kTensors);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), size_t(kTensors));
  EXPECT_EQ(tensors->at("layer.77").begin, 77u);
  EXPECT_THAT(ParseSafetensorsHeader(again, kTensors).status().message(), HasSubstr("twice"));
}

TEST(SafetensorsTest, RefusesTensorsThatAreNotWhatTheySay) {
  const auto refuse = [](const std::string& header, const std::string& part) {
    ExpectFileRefused(Safetensors(header, "12345678"), {"tensor \"w\"", part});
  };
  refuse(One("\"F24\"", "[2]", "[0, 8]"), "found \"F24\"");
  refuse(One("3", "[2]", "[0, 8]"), "one of the dtypes");
  refuse(One("\"F32\"", "[-2]", "[0, 8]"), "a shape");
  refuse(One("\"F32\"", "[2.0]", "[0, 8]"), "a shape");
  refuse(One("\"F32\"", "8", "[0, 8]"), "a shape");
  refuse(One("\"F32\"", "[1152921504606846976, 4]", "[0, 8]"), "a shape");
  refuse(One("\"F32\"", "[1152921504606846976, 0, 1152921504606846976]", "[0, 0]"), "a shape");
  refuse(One("\"F32\"", "[18446744073709551617]", "[0, 8]"), "a shape");
  refuse(One("\"F32\"", "[3]", "[0, 8]"), "12 bytes, as dtype and shape say");
  refuse(One("\"F32\"", "[2]", "[8, 0]"), "begin <= end");
  refuse(One("\"F32\"", "[2]", "[0]"), "begin <= end");
  refuse(One("\"F32\"", "[2]", "[1, 9]"), "begin at 0");
  refuse(One("\"F32\"", "[2]", "[-8, 0]"), "begin <= end");
}

TEST(SafetensorsTest, RefusesTensorsThatOverlapOrLeaveAGap) {
  const auto two = [](const std::string& second) {
    return absl::StrCat(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},)",
                        R"( "b": {"dtype": "U8", "shape": [4], "data_offsets": )", second, "}}");
  };
  ExpectFileRefused(Safetensors(two("[3, 7]"), "1234567"), {"tensor \"b\"", "begin at 4", "3: "});
  ExpectFileRefused(Safetensors(two("[0, 4]"), "1234"), {"tensor \"b\"", "begin at 4"});
  ExpectFileRefused(Safetensors(two("[5, 9]"), "123456789"), {"tensor \"b\"", "begin at 4"});
}

}  // namespace
}  // namespace trainyard::testing
