#include "controller/store/row_checksum.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/crc32.h"
#include "controller/jobs/job_id.h"

namespace trainyard::controller {
namespace {

// The type and, if it varies, the length precede the value, so that rows with different columns
// have different checksums.
uint32_t AddValue(uint32_t crc, sqlite3_value* value) {
  const int type = sqlite3_value_type(value);
  const unsigned char tag = static_cast<unsigned char>(type);
  crc = Crc32(crc, &tag, 1);
  switch (type) {
    case SQLITE_INTEGER: {
      const int64_t number = sqlite3_value_int64(value);
      return Crc32(crc, &number, sizeof(number));
    }
    case SQLITE_FLOAT: {
      double number = sqlite3_value_double(value);
      if (number == 0) number = 0;  // SQLite may have stored -0.0 as the integer 0.
      return Crc32(crc, &number, sizeof(number));
    }
    case SQLITE_TEXT:
    case SQLITE_BLOB: {
      const void* data = sqlite3_value_blob(value);
      const uint64_t bytes = uint64_t(sqlite3_value_bytes(value));
      crc = Crc32(crc, &bytes, sizeof(bytes));
      return bytes == 0 ? crc : Crc32(crc, data, bytes);
    }
    default:
      return crc;
  }
}

void RowChecksum(sqlite3_context* context, int count, sqlite3_value** values) {
  uint32_t crc = 0;
  for (int i = 0; i < count; ++i) crc = AddValue(crc, values[i]);
  sqlite3_result_int64(context, int64_t(crc));
}

}  // namespace

void RegisterRowChecksum(sqlite3* db) {
  CHECK(sqlite3_create_function_v2(db, "row_checksum", -1,
                                   SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, nullptr,
                                   RowChecksum, nullptr, nullptr, nullptr) == SQLITE_OK);
}

std::string StepChecksum(bool numbers) {
  const std::string before = absl::StrCat("row_checksum(number, ", kStepColumns, ")");
  if (!numbers) return before;
  return absl::StrCat("CASE WHEN numbers IS NULL THEN ", before, " ELSE row_checksum(number, ",
                      kStepColumns, ", numbers) END");
}

std::string StepIsGood(bool numbers) {
  return absl::StrCat("(checksum = ", StepChecksum(numbers), ")");
}

absl::Status DamagedRow(absl::string_view table, uint64_t number) {
  return absl::DataLossError(absl::StrCat("the store is damaged: a row of ", table, " of job ",
                                          JobId(number), " has the wrong checksum; ",
                                          kRestoreHint));
}

}  // namespace trainyard::controller
