// Notices that a file which a job reads was replaced by another between two attempts.
//
// Each attempt records a fingerprint of each file that it has read in DIR/epoch-E/inputs.json, and
// those that only attempts before it have read. A later attempt compares what it finds with the
// record of the attempts that it builds on. A fingerprint is cheap: it reads a bounded part of a
// file. So it notices another corpus or other weights, but not every change of a few bytes. It does
// not depend on where a copy of the file lies, nor on the times of the copy.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/roots.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

inline constexpr char kInputsName[] = "inputs.json";

struct InputFingerprint {
  std::string field;  // Of the job spec, whose value is a path: "data.indexed.prefix".
  std::string name;   // What follows that path: ".bin", "/config.json", or nothing.
  uint64_t size_bytes = 0;
  std::string sha256;  // Of the bytes at kPlaces places, or of the whole file if it is small.
  std::string path;    // Where this host has the file, for messages. Not recorded.
};

// The first and the last bytes of a file are among the places.
inline constexpr uint64_t kPlaces = 32;
inline constexpr uint64_t kPlaceBytes = 4096;

// Reads at most kPlaces * kPlaceBytes of the file at `path`. Errors are those of InputFile.
absl::StatusOr<InputFingerprint> TakeFingerprint(const std::string& field, const std::string& name,
                                                 const std::string& path, const Roots& roots);

// The fingerprints that an attempt recorded.
struct RecordedInputs {
  int64_t epoch = 0;  // The attempt.
  std::vector<InputFingerprint> files;
  // Every token of the data's files is at least 0 and below this; 0: not known.
  int64_t tokens_below = 0;
};

std::string ToJson(const RecordedInputs& inputs);
// INVALID_ARGUMENT: the text is damaged. UNIMPLEMENTED: a newer Trainyard wrote it.
absl::StatusOr<RecordedInputs> ParseInputs(const std::string& text);

// Returns the record of the newest attempt of the lineage that has one, or else of the earliest
// attempt that has one: earlier releases made no other. A damaged record does not count. Returns an
// error if a record cannot be read, or if a newer Trainyard wrote it.
absl::StatusOr<std::optional<RecordedInputs>> ReadInputs(const std::string& directory,
                                                         const Lineage& lineage);

// Writes the record of attempt `inputs.epoch`, whose directory must exist. The file is written
// completely or not at all, and is durable once this returns OK.
absl::Status WriteInputs(const std::string& directory, const RecordedInputs& inputs,
                         Storage& storage);

// Adds the files of fields that `later` lacks, as `earlier` has them.
void KeepEarlier(const RecordedInputs& earlier, RecordedInputs& later);

// Whether every one of these files is recorded.
bool Holds(const RecordedInputs& recorded, const std::vector<InputFingerprint>& files);

// Compares the files of each field with the files that were recorded for this field. A field
// without a record is not compared. INVALID_ARGUMENT: names the first file that is another one,
// what was recorded and what was found. `recorded_by` says in the message whose record it is.
absl::Status CompareInputs(const std::vector<InputFingerprint>& found,
                           const RecordedInputs& recorded, absl::string_view recorded_by);

}  // namespace trainyard
