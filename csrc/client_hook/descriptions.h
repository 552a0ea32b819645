// Descriptors that are only settings. PyTorch makes, sets and ends one for each call of a routine.
//
// How this works: the frames that make one and set it are kept, and sent when a call first uses it.
// When the program ends it, it stays at the server: the next one of the same content, which is a
// hash of those calls, is that one.
#pragma once

#include "handles.h"

namespace mnemosyne {

// Before a call that uses the descriptor: it is at the server from now on, as state->number.
void send_description(HandleState* state, void* handle);
// The program has ended it. Whether it can be left where it is.
bool retire(HandleState* state);

}  // namespace mnemosyne
