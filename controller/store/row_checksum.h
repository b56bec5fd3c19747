// The checksum that every row of the store carries: CRC-32 (zlib) over the row's other columns.
//
// A checksum of 32 bits finds every change of up to four bytes that lie together, and misses other
// damage once in four billion times; each page has a checksum of its own besides
// (guarded_disk.h). In SQL the checksum is the function row_checksum(COLUMN, ...), so that one
// expression serves for writing, for reading and for the migration of older stores.

#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::controller {

// Makes row_checksum known to this connection.
void RegisterRowChecksum(sqlite3* db);

// Conditions in SQL that hold for a row which is as it was written. A row of `jobs` has two
// checksums: one of what never changes, one of state and body.
inline constexpr char kJobIsGood[] =
    "(checksum = row_checksum(number, spec, config, facts) AND "
    "state_checksum = row_checksum(number, state, body))";
inline constexpr char kRequestIsGood[] = "(checksum = row_checksum(request_id, number))";
inline constexpr char kEventIsGood[] =
    "(checksum = row_checksum(number, n, time, type, epoch, message))";
inline constexpr char kLogIsGood[] =
    "(checksum = row_checksum(number, n, time, epoch, rank, text))";

// The columns of `steps` but `number`, `checksum` and `numbers`, which came later.
inline constexpr char kStepColumns[] =
    "step, epoch, complete, loss, grad_norm, learning_rate, tokens, seconds, data, forward, "
    "backward, grad_sync, optimizer, pipeline_bubble, checkpoint, mfu, validation_loss, "
    "finish_time, skipped, model_flops, ranks_seen, load_balancing_loss, "
    "gpu_utilization, gpu_power_watts, gpu_sm_clock_hertz, gpu_temperature_celsius, "
    "gpu_throttle_reasons";
// `numbers`: whether the table has that column (schema version 7). Where it is NULL, the checksum
// is what it was before, so that an upgrade rewrites no step.
std::string StepChecksum(bool numbers = true);
std::string StepIsGood(bool numbers = true);

// What to do about damage, as the end of a message.
inline constexpr char kRestoreHint[] =
    "to go back to a backup, stop the controller, run it once with --restore BACKUP, and start it "
    "again";

// DATA_LOSS: a row of this table and job has the wrong checksum.
absl::Status DamagedRow(absl::string_view table, uint64_t number);

}  // namespace trainyard::controller
