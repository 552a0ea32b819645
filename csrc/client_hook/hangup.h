// Notices that the server is gone, for programs that never wait for it.
#pragma once

#include "session.h"

namespace mnemosyne {

// Marks the session's channel dead once its socket hangs up, so that a call finds out by the load
// it does anyway: a supervisor that was killed cannot say it. Takes a thread, which sleeps until
// then.
void watch_for_hangup(Session* s);

}  // namespace mnemosyne
