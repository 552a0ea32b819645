#include "hangup.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>

namespace mnemosyne {
namespace {

constexpr size_t kStackBytes = 256 << 10;

void* watch(void* session) {
  auto* s = static_cast<Session*>(session);
  pollfd hangup{s->socket, POLLRDHUP, 0};
  while (poll(&hangup, 1, -1) < 0 && errno == EINTR) {
  }
  s->channel->dead.store(1, std::memory_order_release);
  return nullptr;
}

}  // namespace

// Without the thread (the program may be at its limit) calls that wait still find out.
void watch_for_hangup(Session* s) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);  // the program's handlers run in its own threads
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, kStackBytes);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  pthread_create(&thread, &small, watch, s);
  pthread_attr_destroy(&small);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace mnemosyne
