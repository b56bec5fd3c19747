#include "worker/trainer/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/check.h"

namespace trainyard {

StopSignals::StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  CHECK(::pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  fd_ = ::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  CHECK(fd_ >= 0) << "signalfd: " << std::strerror(errno);
}
StopSignals::~StopSignals() { ::close(fd_); }

bool StopSignals::Received() {
  signalfd_siginfo info;
  if (::read(fd_, &info, sizeof(info)) == sizeof(info)) received_ = true;
  return received_;
}

}  // namespace trainyard
