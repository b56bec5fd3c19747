// The checksum in every row of the store: the CRC-32 (zlib) of the row's other columns.
//
// The checksum has 32 bits. It finds every change within four consecutive bytes, and misses other
// damage once in four billion times. In addition, each page has a checksum of its own
// (guarded_disk.h). In SQL the checksum is the function row_checksum(COLUMN, ...), so one
// expression serves writing, reading and the migration of older stores.

#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::controller {

// Defines row_checksum for this connection.
void RegisterRowChecksum(sqlite3* db);

// Conditions in SQL that are true for an undamaged row. A row of `jobs` has two checksums: one of
// the columns that never change, and one of state and body.
inline constexpr char kJobIsGood[] =
    "(checksum = row_checksum(number, spec, config, facts) AND "
    "state_checksum = row_checksum(number, state, body))";
inline constexpr char kRequestIsGood[] = "(checksum = row_checksum(request_id, number))";
inline constexpr char kEventIsGood[] =
    "(checksum = row_checksum(number, n, time, type, epoch, message))";
inline constexpr char kLogIsGood[] =
    "(checksum = row_checksum(number, n, time, epoch, rank, text))";

// The columns of `steps` except `number`, `checksum` and `numbers`, which is newer.
inline constexpr char kStepColumns[] =
    "step, epoch, complete, loss, grad_norm, learning_rate, tokens, seconds, data, forward, "
    "backward, grad_sync, optimizer, pipeline_bubble, checkpoint, mfu, validation_loss, "
    "finish_time, skipped, model_flops, ranks_seen, load_balancing_loss, "
    "gpu_utilization, gpu_power_watts, gpu_sm_clock_hertz, gpu_temperature_celsius, "
    "gpu_throttle_reasons";
// `numbers`: whether the table has the column of this name (schema version 7). If the column is
// NULL, the checksum is that of the older schema, so an upgrade rewrites no step.
std::string StepChecksum(bool numbers = true);
std::string StepIsGood(bool numbers = true);

// The end of a message about damage: what to do next.
inline constexpr char kRestoreHint[] =
    "to go back to a backup, stop the controller, run it once with --restore BACKUP, and start it "
    "again";

// DATA_LOSS: a row of this table and job has the wrong checksum.
absl::Status DamagedRow(absl::string_view table, uint64_t number);

}  // namespace trainyard::controller
