// Functions of the program's that run between the work of a stream.
#pragma once

#include <atomic>

#include "handles.h"

namespace mnemosyne {

// How many streams have a function that has not returned.
extern std::atomic<int> host_functions;

// Before something goes into the stream: waits for the functions that come before it.
void wait_for_functions(const HandleState* stream);
// The same for all streams.
void wait_for_all_functions();
// Whether such a function has not returned.
bool is_held_up(const HandleState* stream);

}  // namespace mnemosyne
