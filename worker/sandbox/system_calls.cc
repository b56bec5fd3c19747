#include "worker/sandbox/system_calls.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <vector>

#include "common/files.h"

namespace trainyard {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "which AUDIT_ARCH_ is this?"
#endif
static_assert(std::endian::native == std::endian::little);

// On x86-64, numbers from here on name the same calls in another table.
constexpr uint32_t kOtherTable = 0x40000000;

sock_filter Load(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, uint32_t(offset)); }
sock_filter Return(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
// Skips the next instruction unless the comparison of the loaded word with `value` holds.
sock_filter SkipUnless(uint16_t comparison, uint32_t value) {
  return BPF_JUMP(uint16_t(BPF_JMP | comparison | BPF_K), value, 0, 1);
}

}  // namespace

absl::Status DenySystemCalls(const DeniedCalls& denied) {
  const sock_filter deny = Return(SECCOMP_RET_ERRNO | EPERM);
  std::vector<sock_filter> program = {Load(offsetof(seccomp_data, arch)),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
                                      deny,  // A call of a 32-bit program.
                                      Load(offsetof(seccomp_data, nr)),
                                      SkipUnless(BPF_JGE, kOtherTable),
                                      deny};
  for (const int call : denied.calls) {
    program.push_back(SkipUnless(BPF_JEQ, uint32_t(call)));
    program.push_back(deny);
  }
  for (const int call : denied.absent) {
    program.push_back(SkipUnless(BPF_JEQ, uint32_t(call)));
    program.push_back(Return(SECCOMP_RET_ERRNO | ENOSYS));
  }
  const sock_filter allow = Return(SECCOMP_RET_ALLOW);
  // This is last, because the program then loads another word in place of the call's number.
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0));
  program.push_back(allow);
  program.push_back(Load(offsetof(seccomp_data, args[0])));  // The low half, with all flags.
  program.push_back(SkipUnless(BPF_JSET, denied.clone_flags));
  program.push_back(deny);
  program.push_back(allow);
  const sock_fprog filter = {.len = uint16_t(program.size()), .filter = program.data()};
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "install", "a filter of system calls");
}

}  // namespace trainyard
