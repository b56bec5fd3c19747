#include "worker/trainer/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/check.h"
#include "common/file_descriptor.h"

namespace trainyard {

StopSignals::StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  CHECK(::pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  signals_ = FileDescriptor(::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
  CHECK(signals_.valid()) << "signalfd: " << std::strerror(errno);
}

bool StopSignals::Received() {
  signalfd_siginfo info;
  if (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) received_ = true;
  return received_;
}

}  // namespace trainyard
