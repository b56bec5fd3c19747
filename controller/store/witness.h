// Tells after a crash or a fault how far the store must reach. The file DIRECTORY/witness holds the
// newest transactions, by number, in 32 slots. If SQLite's log was cut short or changed, SQLite
// silently drops the end of the log. The witness knows that the end existed, and holds a copy.
//
// A transaction is acknowledged once its slot is synced. The slot holds the bytes that the
// transaction added to the log. So the log needs a sync only before a slot is used again, at every
// 32nd transaction. All in all there is one sync for each transaction, as without a witness. If a
// transaction is too large for a slot, the log is synced first, and the slot holds only the number.
//
// When the store is opened, RepairLog restores the newest transactions that are missing in the log.
// If the store's own count of transactions is still less than newest(), acknowledged transactions
// are missing. A transaction that was being written when the controller died may be restored, too.
// That is allowed, because its caller has had no answer.

#pragma once

#include <sqlite3.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard::controller {

// Used by one thread at a time. Errors name the path.
class Witness {
 public:
  // Reads the file if there is one, and makes none. INTERNAL: the file cannot be read.
  static absl::StatusOr<std::unique_ptr<Witness>> Load(const std::string& path);
  ~Witness();

  // The number of the newest transaction that may have been acknowledged. Absent: there is no
  // witness, or none of its slots is readable.
  std::optional<uint64_t> newest() const { return newest_; }

  // Restores what the log lacks of the transactions in the slots. Call this before SQLite opens the
  // log. Returns how many bytes were restored.
  absl::StatusOr<uint64_t> RepairLog(const std::string& path);

  // Makes a new witness for a store whose newest transaction has this number.
  absl::Status Create(uint64_t number);
  // Begins to write the slots. The log must be empty, and the store must contain everything up to
  // this transaction.
  void Start(uint64_t number);

  // The steps of a transaction. Begin forgets the bytes of an earlier transaction. Expect sets the
  // number of the transaction that is about to be committed.
  void Begin();
  void Expect(uint64_t number);
  // The transaction failed, and its caller is told so. Clears its slot if it was written.
  void Forget();

  // Called by the layer below SQLite. OnLogSync returns SQLite's code, and calls `sync` if the log
  // must be synced.
  void OnLogWrite(const char* data, size_t bytes, int64_t offset);
  int OnLogSync(const std::function<int()>& sync);

 private:
  class File;
  struct Record {
    uint64_t number = 0;
    std::string salt;  // That of the log to which the bytes were added.
    int64_t offset = 0;
    std::string bytes;  // Empty: the log was synced first.
  };

  explicit Witness(std::string path);
  absl::Status ReadSlots();
  static std::optional<Record> Decode(const std::string& slot);
  const std::string& Seal(uint64_t number);  // Returns slot_ with its header.
  void ClearSlot();
  int WriteSlot(uint64_t number, const std::string& slot);

  const std::string path_;
  std::unique_ptr<File> file_;   // Null: there is no file.
  std::vector<Record> records_;  // As read, by number.
  std::optional<uint64_t> newest_;

  bool started_ = false;
  uint64_t log_synced_ = 0;  // The log is durable up to this transaction.
  std::optional<uint64_t> expected_;
  std::optional<uint64_t> doubtful_;  // A transaction that failed; its slot may have been written.
  std::string salt_;
  // The slot being filled: room for its header, then the bytes added to the log since its last
  // sync.
  std::string slot_;
  int64_t offset_ = 0;     // The offset of these bytes in the log.
  bool one_piece_ = true;  // slot_ holds all of these bytes.
};

}  // namespace trainyard::controller
