// Proves that .npy files are read as NumPy writes them (tests/golden/make_npy.py made the files
// with NumPy), and that all others are refused with their name and the reason.

#include "train/data/npy.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/text.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Golden(const std::string& name) {
  return absl::StrCat(std::getenv("TRAINYARD_SOURCE"), "/tests/golden/npy/", name, ".npy");
}

NpyArray OpenGolden(const std::string& name) {
  absl::StatusOr<NpyArray> array = NpyArray::Open(Golden(name), Roots());
  CHECK(array.ok()) << array.status();
  return *std::move(array);
}

template <typename T>
std::vector<T> ReadAll(const NpyArray& array, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  const absl::Status status = array.Read(0, std::span(values));
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

TEST(Npy, ReadsRealsOfBothTypesAndAllVersions) {
  for (const char* name : {"f4", "f2", "version_2", "version_3"}) {
    SCOPED_TRACE(name);
    const NpyArray array = OpenGolden(name);
    EXPECT_THAT(array.shape(), ElementsAre(3, 2, 4, 2));
    const std::vector<float> all = ReadAll<float>(array, 48);
    for (int i = 0; i < 48; ++i) EXPECT_EQ(all[size_t(i)], float(i - 20) / 8);
    std::vector<float> some(3);
    ASSERT_TRUE(array.Read(45, std::span(some)).ok());
    EXPECT_THAT(some, ElementsAre(25.0f / 8, 26.0f / 8, 27.0f / 8));
  }
}

TEST(Npy, ReadsHalfPrecisionUpToItsEdges) {
  const std::vector<float> edges = ReadAll<float>(OpenGolden("f2_edges"), 11);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(std::vector<float>(edges.begin(), edges.end() - 1),
              ElementsAre(0.0f, 0.0f, 0x1p-24f, 1023 * 0x1p-24f, 0x1p-14f, 1.0f, 65504.0f,
                          -65504.0f, infinity, -infinity));
  EXPECT_TRUE(std::signbit(edges[1]));
  EXPECT_TRUE(std::isnan(edges[10]));
}

template <typename T>
void ExpectLimits(const char* name) {
  SCOPED_TRACE(name);
  using Limits = std::numeric_limits<T>;
  const uint64_t most = std::min<uint64_t>(uint64_t(Limits::max()), INT64_MAX);
  EXPECT_THAT(ReadAll<int64_t>(OpenGolden(name), 4),
              ElementsAre(int64_t(Limits::min()), 0, 1, int64_t(most)));
}

TEST(Npy, ReadsEveryIntegerType) {
  ExpectLimits<uint8_t>("u1");
  ExpectLimits<int8_t>("i1");
  ExpectLimits<uint16_t>("u2");
  ExpectLimits<int16_t>("i2");
  ExpectLimits<uint32_t>("u4");
  ExpectLimits<int32_t>("i4");
  ExpectLimits<uint64_t>("u8");
  ExpectLimits<int64_t>("i8");
}

TEST(Npy, ReadsShapesOfAnyNumberOfDims) {
  EXPECT_THAT(OpenGolden("no_dims").shape(), ElementsAre());
  EXPECT_THAT(OpenGolden("empty").shape(), ElementsAre(0, 3));
}

TEST(Npy, RefusesWhatNumpyWritesAndNobodyReadsHere) {
  const auto message = [](const char* name) {
    const absl::Status status = NpyArray::Open(Golden(name), Roots()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(Golden(name)));
    return std::string(status.message());
  };
  EXPECT_THAT(message("fortran"), HasSubstr("wanted elements in C order, found Fortran order"));
  EXPECT_THAT(message("big_endian"), HasSubstr("found \">f4\", which is big-endian"));
  EXPECT_THAT(message("objects"), HasSubstr("found \"|O\", which are pickled objects"));
  EXPECT_THAT(message("structure"), HasSubstr("a 'descr' that is no single type"));
  EXPECT_THAT(message("complex"), AllOf(HasSubstr("found \"<c8\""), HasSubstr("<f4, <f2, |u1")));
  EXPECT_THAT(message("f8"), HasSubstr("found \"<f8\""));
}

TEST(Npy, ReadsTheLiteralHoweverItIsSpaced) {
  for (const char* literal :
       {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }    \n",
        "{\"shape\":(2,3),'fortran_order':False,'descr':\"<f4\"}",
        " { 'shape' : ( 2 , 3 , ) , 'descr' : '<f4' , 'fortran_order' : False } "}) {
    const auto header = ParseNpyHeader(literal);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_STREQ(header->type.descr, "<f4");
    EXPECT_THAT(header->shape, ElementsAre(2, 3));
  }
}

TEST(Npy, RefusesEveryOtherLiteral) {
  const auto with_shape = [](const std::string& shape) {
    return "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + "}";
  };
  const std::string good = with_shape("(2, 3)");
  std::string many = "(";
  for (int i = 0; i < 33; ++i) many += "1,";
  for (const std::string& literal : {
           std::string(),
           good.substr(1),
           good + "x",
           good + "{}",
           std::string("{}"),
           std::string("{'descr': '<f4', 'shape': (2,)}"),
           std::string("{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}"),
           std::string("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}"),
           std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}"),
           std::string("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}"),
           std::string("{'descr': '<f4\\'', 'fortran_order': False, 'shape': (2,)}"),
           std::string("{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}"),
           std::string("{'\xff': '<f4'}"),
           std::string("{'descr': '\xff', 'fortran_order': False, 'shape': (2,)}"),
           with_shape("(2)"),
           with_shape("2"),
           with_shape("[2, 3]"),
           with_shape("(2, -3)"),
           with_shape("(2, 3L)"),
           with_shape("(2 3)"),
           with_shape("(,)"),
           with_shape("(2,,)"),
           with_shape("(2, 3"),
           with_shape("(9223372036854775808,)"),
           // 2^61 elements of 4 bytes are 2^63 bytes; a 0 hides none of it.
           with_shape("(2305843009213693952,)"),
           with_shape("(4294967296, 4294967296)"),
           with_shape("(0, 4294967296, 4294967296)"),
           with_shape(many + ")"),
       }) {
    const absl::Status status = ParseNpyHeader(literal).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << literal;
    EXPECT_EQ(ValidUtf8(status.message()), status.message());
  }
  EXPECT_TRUE(ParseNpyHeader(with_shape("(2305843009213693951,)")).ok());
}

class NpyFiles : public ::testing::Test {
 protected:
  NpyFiles() : directory_(::testing::TempDir() + "/npy_files") {
    EXPECT_TRUE(RemoveTree(directory_).ok());
    EXPECT_TRUE(MakeDirectories(directory_).ok());
  }
  absl::StatusOr<NpyArray> Open(const std::string& bytes) const {
    EXPECT_TRUE(WriteFileAtomic(directory_ + "/a.npy", bytes).ok());
    return NpyArray::Open("a.npy", Roots({directory_}));
  }
  const std::string directory_;
};

// Every prefix of a good file, and one byte more than it has.
TEST_F(NpyFiles, RefusesEveryTruncation) {
  for (const char* name : {"f4", "version_2"}) {
    const std::string whole = ReadFile(Golden(name)).value();
    EXPECT_TRUE(Open(whole).ok());
    for (size_t size = 0; size < whole.size(); ++size) {
      const absl::Status status = Open(whole.substr(0, size)).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
      EXPECT_THAT(std::string(status.message()), HasSubstr("a.npy"));
    }
    EXPECT_THAT(std::string(Open(whole + "x").status().message()),
                HasSubstr("wanted 192 bytes of elements, as the header says, found 193"));
  }
}

TEST_F(NpyFiles, RefusesAHugeHeaderBeforeItIsRead) {
  const std::string whole = ReadFile(Golden("version_2")).value();
  std::string bad = whole;
  bad.replace(8, 4, "\xff\xff\xff\xff");
  EXPECT_THAT(std::string(Open(bad).status().message()),
              HasSubstr("wanted a header of at most 10000 bytes, found 4294967295"));
  bad = whole;
  bad[0] = 'x';
  EXPECT_THAT(std::string(Open(bad).status().message()), HasSubstr("not begin as an .npy file"));
  for (const char* version : {"\x04", "\x07"}) {
    bad = whole;
    bad.replace(6, 1, version);
    EXPECT_THAT(std::string(Open(bad).status().message()), HasSubstr("version 1.0, 2.0 or 3.0"));
  }
}

TEST_F(NpyFiles, AFileThatShrinksWhileReadIsDataLoss) {
  const auto array = Open(ReadFile(Golden("f4")).value());
  ASSERT_TRUE(array.ok()) << array.status();
  std::filesystem::resize_file(directory_ + "/a.npy", 128 + 4 * 10);
  std::vector<float> values(10);
  EXPECT_TRUE(array->Read(0, std::span(values)).ok());
  EXPECT_EQ(array->Read(1, std::span(values)).code(), absl::StatusCode::kDataLoss);
}

TEST_F(NpyFiles, LieBelowTheRoots) {
  EXPECT_EQ(NpyArray::Open(Golden("f4"), Roots({directory_})).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(NpyArray::Open("none.npy", Roots({directory_})).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace trainyard
