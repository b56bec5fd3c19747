// Proves what a process in the sandbox can no longer do, by doing it: each attempt runs in a child
// that has entered, and the child's exit code is the errno that it met (0: it was done).

#include "worker/sandbox/sandbox.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/files.h"
#include "common/roots.h"
#include "tests/worker/daemon/testing.h"
#include "worker/sandbox/landlock.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

constexpr int kNotEntered = 254;

int Errno(long result) { return result < 0 ? errno : 0; }

// What `attempt` meets in a child that has entered.
int Inside(const Sandbox& sandbox, const std::function<int()>& attempt) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) ::_exit(Enter(sandbox).ok() ? attempt() : kNotEntered);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int Read(const std::string& path) { return Errno(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); }
int Write(const std::string& path, int flags = O_CREAT) {
  return Errno(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644));
}

// As fork(2), with these flags.
long Clone(unsigned long flags) {
  const long child = ::syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
  if (child == 0) ::_exit(0);
  return child;
}

class SandboxTest : public ::testing::Test {
 protected:
  SandboxTest() {
    for (const char* name :
         {"roots/mine", "roots/others", "state/rank", "state/rank/trainer", "beside"}) {
      CHECK(MakeDirectories(Path(name)).ok());
      CHECK(WriteFileAtomic(Path(name) + "/file", "text").ok());
    }
    CHECK(WriteFileAtomic(Path("state/key.pem"), "secret").ok());
    CHECK(::symlink(Path("state/key.pem").c_str(), Path("beside/link").c_str()) == 0);
    sandbox_ = {.writable = {Path("roots/mine"), Path("state/rank/trainer"), "/dev"},
                .hidden = {Path("state"), Path("roots")},
                .readable = {Path("state/rank")}};
    CHECK(LandlockVersion() > 0) << "this test needs a kernel with Landlock";
  }
  std::string Path(const std::string& name) const {
    return absl::StrCat(directory_.path(), "/", name);
  }

  const TemporaryDirectory directory_;
  Sandbox sandbox_;
};

TEST_F(SandboxTest, WritesWhereItMayAlone) {
  EXPECT_EQ(Inside(sandbox_, [&] { return Write(Path("roots/mine/new")); }), 0);
  EXPECT_EQ(Inside(sandbox_, [&] { return Write(Path("state/rank/trainer/new")); }), 0);
  EXPECT_EQ(Inside(sandbox_, [&] { return Write("/dev/null", 0); }), 0);
  EXPECT_EQ(Inside(sandbox_,
                   [&] {
                     const std::string from = Path("roots/mine/a"), to = Path("roots/mine/d/a");
                     if (const int e = Errno(::mkdir(Path("roots/mine/d").c_str(), 0755))) return e;
                     if (const int e = Write(from)) return e;
                     if (const int e = Errno(::rename(from.c_str(), to.c_str()))) return e;
                     return Errno(::unlink(to.c_str()));
                   }),
            0);
  for (const std::string name : {"beside", "state", "state/rank", "roots/others", "."}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(Inside(sandbox_, [&] { return Write(Path(name + "/new")); }), EACCES);
    EXPECT_EQ(Inside(sandbox_, [&] { return Errno(::mkdir(Path(name + "/d").c_str(), 0755)); }),
              EACCES);
  }
  EXPECT_EQ(Inside(sandbox_, [&] { return Write(Path("beside/file"), 0); }), EACCES);
  EXPECT_EQ(Inside(sandbox_, [&] { return Errno(::truncate(Path("beside/file").c_str(), 0)); }),
            EACCES);
  EXPECT_EQ(Inside(sandbox_, [&] { return Errno(::unlink(Path("beside/file").c_str())); }), EACCES);
  EXPECT_EQ(
      Inside(sandbox_,
             [&] {
               return Errno(::rename(Path("roots/mine/file").c_str(), Path("beside/x").c_str()));
             }),
      EACCES);
  EXPECT_EQ(ReadFile(Path("beside/file")).value(), "text");
}

TEST_F(SandboxTest, ReadsNothingThatIsHidden) {
  for (const std::string name : {"state/key.pem", "roots/others/file", "beside/link"}) {
    EXPECT_EQ(Inside(sandbox_, [&] { return Read(Path(name)); }), EACCES) << name;
  }
  EXPECT_EQ(Inside(sandbox_, [&] { return Read(Path("state")); }), EACCES) << "its names";
  for (const std::string name : {"beside/file", "roots/mine/file", "state/rank/file"}) {
    EXPECT_EQ(Inside(sandbox_, [&] { return Read(Path(name)); }), 0) << name;
  }
  EXPECT_EQ(Inside(sandbox_, [] { return Read("/etc/passwd"); }), 0);
  EXPECT_EQ(Inside(sandbox_, [] { return Read("/proc/self/maps"); }), 0);
}

// Bug it must catch: a program, or a job's root, that lies above what is hidden opens that.
TEST_F(SandboxTest, WhatIsHiddenStaysSoBelowWhatIsAllowed) {
  sandbox_ = {.writable = {Path("state/rank/trainer"), directory_.path()},
              .hidden = {Path("state"), Path("roots/others")},
              .readable = {"/", directory_.path(), Path("state/rank")}};
  for (const std::string name : {"state/key.pem", "roots/others/file"}) {
    EXPECT_EQ(Inside(sandbox_, [&] { return Read(Path(name)); }), EACCES) << name;
    EXPECT_EQ(Inside(sandbox_, [&] { return Write(Path(name), 0); }), EACCES) << name;
  }
  EXPECT_EQ(Inside(sandbox_, [&] { return Read(Path("state/rank/file")); }), 0);
  EXPECT_EQ(Inside(sandbox_, [&] { return Write(Path("state/rank/trainer/new")); }), 0);
  EXPECT_EQ(Inside(sandbox_, [&] { return Write(Path("roots/mine/new")); }), 0);
  EXPECT_EQ(Inside(sandbox_, [&] { return Write(Path("beside/file"), 0); }), 0);
}

TEST_F(SandboxTest, WhatIsHiddenNeedNotExistYet) {
  sandbox_ = {.writable = {directory_.path()}, .hidden = {Path("beside/later/secrets")}};
  int entered[2], made[2];
  ASSERT_EQ(::pipe2(entered, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(made, O_CLOEXEC), 0);
  // The user logs in while a rank runs.
  std::thread user([&] {
    char byte;
    CHECK(::read(entered[0], &byte, 1) == 1);
    CHECK(MakeDirectories(Path("beside/later/secrets")).ok());
    CHECK(WriteFileAtomic(Path("beside/later/secrets/token"), "secret").ok());
    CHECK(::write(made[1], "", 1) == 1);
  });
  EXPECT_EQ(Inside(sandbox_,
                   [&] {
                     char byte;
                     if (::write(entered[1], "", 1) != 1 || ::read(made[0], &byte, 1) != 1)
                       return 1;
                     return Read(Path("beside/later/secrets/token"));
                   }),
            EACCES);
  user.join();
}

// Beside what is hidden nothing new can be made, so that the directories of a job come first.
TEST_F(SandboxTest, WhatAJobMakesIsMadeBeforeItEnters) {
  sandbox_ = {.writable = {directory_.path()},
              .hidden = {Path("state")},
              .made = {Path("runs/one/checkpoints"), "/nowhere/else"}};
  EXPECT_EQ(Inside(sandbox_, [&] { return Write(Path("runs/one/checkpoints/new")); }), 0);
  EXPECT_EQ(Inside(sandbox_, [&] { return Write(Path("new")); }), EACCES);
  EXPECT_FALSE(Exists("/nowhere")) << "outside of what may be written";
}

// The trainer's way of opening files, with and without roots: directories above cannot be listed.
TEST_F(SandboxTest, FilesAreOpenedBelowDirectoriesThatCannotBeListed) {
  const auto opens = [&](const Roots& roots) {
    return [&] { return roots.OpenFile(Path("roots/mine/file")).ok() ? 0 : 1; };
  };
  EXPECT_EQ(Inside(sandbox_, [] { return Read("/"); }), EACCES);
  EXPECT_EQ(Inside(sandbox_, opens(Roots())), 0);
  EXPECT_EQ(Inside(sandbox_, opens(Roots({Path("roots/mine")}))), 0);
}

TEST_F(SandboxTest, WithoutLandlockTheRestHolds) {
  sandbox_.landlock = false;
  EXPECT_EQ(Inside(sandbox_, [&] { return Read(Path("state/key.pem")); }), 0);
  EXPECT_EQ(Inside(sandbox_, [] { return Errno(::unshare(CLONE_NEWUSER)); }), EPERM);
}

TEST_F(SandboxTest, DangerousCallsAreRefused) {
  const std::map<std::string, std::function<long()>> calls = {
      {"ptrace", [] { return ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr); }},
      {"mount", [] { return ::mount("none", "/mnt", "tmpfs", 0, nullptr); }},
      {"mount_setattr", [] { return ::syscall(SYS_mount_setattr, -1, "", 0, nullptr, 0); }},
      {"unshare", [] { return ::unshare(CLONE_NEWUSER); }},
      {"clone", [] { return Clone(CLONE_NEWUSER); }},
      {"clone with another namespace", [] { return Clone(CLONE_NEWNET | CLONE_FILES); }},
      {"pidfd_getfd", [] { return ::syscall(SYS_pidfd_getfd, -1, 0, 0); }},
      {"perf_event_open", [] { return ::syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0); }},
      {"chroot", [] { return ::chroot("/"); }},
      {"process_vm_readv",
       [] { return ::syscall(SYS_process_vm_readv, ::getpid(), 0, 0, 0, 0, 0); }},
      {"bpf", [] { return ::syscall(SYS_bpf, 0, 0, 0); }},
      {"io_uring_setup", [] { return ::syscall(SYS_io_uring_setup, 0, 0); }},
      {"keyctl", [] { return ::syscall(SYS_keyctl, 0, -3, 0, 0, 0); }},
      {"userfaultfd", [] { return ::syscall(SYS_userfaultfd, -1); }},
      {"init_module", [] { return ::syscall(SYS_init_module, 0, 0, 0); }},
      {"sethostname", [] { return ::syscall(SYS_sethostname, "", -1); }}};
  for (const auto& [name, call] : calls) {
#ifdef __SANITIZE_ADDRESS__
    if (name == "ptrace") continue;
#endif
    EXPECT_EQ(Inside({}, [&] { return Errno(call()); }), EPERM) << name;
  }
  EXPECT_EQ(Inside({}, [] { return Errno(::syscall(SYS_clone3, nullptr, 0)); }), ENOSYS);
  EXPECT_EQ(Inside({}, [] { return Errno(Clone(CLONE_FILES)); }), 0) << "what has no namespace";
  EXPECT_EQ(Inside({},
                   [] {
                     std::thread([] {}).join();
                     return 0;
                   }),
            0)
      << "threads start by the older call";
#ifdef __x86_64__
  EXPECT_EQ(Inside({}, [] { return Errno(::syscall(0x40000000 | SYS_getpid)); }), EPERM)
      << "the same calls by another table";
#endif
}

TEST_F(SandboxTest, NoPrivilegesAreLeft) {
  EXPECT_EQ(Inside({},
                   [] {
                     const std::string status = *ReadFile("/proc/self/status");
                     for (const char* line :
                          {"\nCapInh:\t0000000000000000\n", "\nCapPrm:\t0000000000000000\n",
                           "\nCapEff:\t0000000000000000\n", "\nCapAmb:\t0000000000000000\n",
                           "\nNoNewPrivs:\t1\n", "\nSeccomp:\t2\n"}) {
                       if (!absl::StrContains(status, line)) return 1;
                     }
                     // Only root can take capabilities from those that others may get.
                     const bool root = ::geteuid() == 0;
                     return !root || absl::StrContains(status, "\nCapBnd:\t0000000000000000\n") ? 0
                                                                                                : 2;
                   }),
            0);
  EXPECT_EQ(Inside({},
                   [] {
                     rlimit core = {.rlim_cur = 1, .rlim_max = 1};
                     ::getrlimit(RLIMIT_CORE, &core);
                     return int(core.rlim_max);
                   }),
            0);
  EXPECT_FALSE(InSandbox());
  EXPECT_EQ(Inside({}, [] { return InSandbox() ? 0 : 1; }), 0);
}

TEST_F(SandboxTest, StartsNoOtherProgramAfterDenyExec) {
  const auto exec = [] {
    const char* const arguments[] = {"/bin/true", nullptr};
    ::execve(arguments[0], const_cast<char* const*>(arguments), nullptr);
    return errno;
  };
  EXPECT_EQ(Inside(sandbox_, exec), 0);
  EXPECT_EQ(Inside(sandbox_, [&] { return DenyExec().ok() ? exec() : kNotEntered; }), EPERM);
}

TEST_F(SandboxTest, BecomesTheRanksUserForGood) {
  sandbox_.user =
      RankUser{.name = "somebody", .uid = 54321, .gid = 54322, .groups = {54322, 54323}};
  if (::geteuid() != 0) {
    EXPECT_EQ(Inside(sandbox_, [] { return 0; }), kNotEntered) << "only root can";
    return;
  }
  ASSERT_EQ(::chown(Path("roots/mine").c_str(), 54321, 54322), 0);
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  EXPECT_EQ(Inside(sandbox_,
                   [] {
                     gid_t groups[3] = {};
                     if (::getgroups(3, groups) != 2 || groups[1] != 54323) return 1;
                     uid_t real, effective, saved;
                     ::getresuid(&real, &effective, &saved);
                     if (real != 54321 || effective != 54321 || saved != 54321) return 2;
                     ::getresgid(&real, &effective, &saved);
                     return real == 54322 && effective == 54322 && saved == 54322 ? 0 : 3;
                   }),
            0);
  EXPECT_EQ(Inside(sandbox_, [] { return Errno(::setuid(0)); }), EPERM);
  EXPECT_EQ(Inside(sandbox_, [] { return Errno(::setgroups(0, nullptr)); }), EPERM);
  EXPECT_EQ(Inside(sandbox_, [&] { return Write(Path("roots/mine/new")); }), 0);
  sandbox_.made = {Path("roots/mine/made")};
  EXPECT_EQ(Inside(sandbox_, [] { return 0; }), 0);
  struct stat made = {};
  ASSERT_EQ(::stat(sandbox_.made[0].c_str(), &made), 0);
  EXPECT_EQ(made.st_uid, 54321u);
}

}  // namespace
}  // namespace trainyard
