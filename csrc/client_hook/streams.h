// What streams and launches share.
#pragma once

#include "handles.h"

namespace mnemosyne {

// The frame at `position` records the event. One that other processes wait for has been recorded
// when this returns: their frames travel in rings of their own, and would overtake it.
int record_sent(cudaEvent_t event, uint64_t position);

}  // namespace mnemosyne
