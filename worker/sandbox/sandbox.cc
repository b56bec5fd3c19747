#include "worker/sandbox/sandbox.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/files.h"
#include "common/roots.h"
#include "common/status_macros.h"
#include "worker/sandbox/landlock.h"
#include "worker/sandbox/system_calls.h"

namespace trainyard {
namespace {

constexpr int kDangerous[] = {
// These act on other processes.
#ifndef __SANITIZE_ADDRESS__  // Its search for leaks stops threads this way.
    SYS_ptrace,
#endif
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_pidfd_getfd, SYS_perf_event_open,
    // These change the view of the file system.
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_fsopen, SYS_fsconfig,
    SYS_fsmount, SYS_fspick, SYS_open_tree, SYS_mount_setattr, SYS_setns, SYS_unshare,
    SYS_open_by_handle_at, SYS_quotactl, SYS_swapon, SYS_swapoff, SYS_acct,
    // These change the kernel itself.
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_bpf, SYS_reboot,
    SYS_syslog, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_iopl
    SYS_iopl, SYS_ioperm,
#endif
    // These change keys, clocks and names of the machine.
    SYS_add_key, SYS_request_key, SYS_keyctl, SYS_settimeofday, SYS_clock_settime,
    SYS_clock_adjtime, SYS_sethostname, SYS_setdomainname, SYS_vhangup};

// The creator of a user namespace has all capabilities in it, and reaches the parts of the kernel
// that require capabilities. Time namespaces have no flag of clone.
constexpr uint32_t kNamespaceFlags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID |
                                     CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
// The flags of this call are in memory, where a filter cannot see them.
constexpr int kOpaque[] = {SYS_clone3};

// Applies to ranks that stay root, too. If the kernel does not drop a capability, it was never
// held.
void DropCapabilities() {
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
}

absl::Status ClearCapabilities() {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none = {};
  if (::syscall(SYS_capset, &header, none.data()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "drop", "capabilities");
}

// Makes the directories in a child, which becomes the ranks' user before files are restricted. If a
// directory cannot be made, the trainer finds it missing and reports this.
void MakeWhatIsMissing(const Sandbox& sandbox) {
  if (sandbox.made.empty()) return;
  const pid_t child = ::fork();
  if (child == 0) {
    if (sandbox.user && !Become(*sandbox.user).ok()) ::_exit(1);
    for (const std::string& path : sandbox.made) {
      (void)Roots(sandbox.writable).MakeDirectory(path);
    }
    ::_exit(0);
  }
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace

absl::Status Enter(const Sandbox& sandbox) {
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0) return ErrnoStatus(errno, "forbid", "core dumps");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return ErrnoStatus(errno, "forbid", "new privileges");
  }
  MakeWhatIsMissing(sandbox);
  if (sandbox.landlock) RETURN_IF_ERROR(RestrictFiles(sandbox));
  DropCapabilities();
  if (sandbox.user) RETURN_IF_ERROR(Become(*sandbox.user));
  RETURN_IF_ERROR(ClearCapabilities());
  return DenyDangerousCalls();
}

absl::Status DenyDangerousCalls() {
  return DenySystemCalls({.calls = kDangerous, .absent = kOpaque, .clone_flags = kNamespaceFlags});
}

absl::Status DenyExec() {
  constexpr int kExec[] = {SYS_execve, SYS_execveat};
  return DenySystemCalls({.calls = kExec});
}

bool InSandbox() { return ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1; }

}  // namespace trainyard
