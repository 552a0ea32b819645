#include "descriptions.h"

#include "frame.h"
#include "tables.h"

namespace mnemosyne {
namespace {

constexpr size_t kMostSpare = 64;

std::unordered_multimap<uint64_t, uint64_t>& spare() {
  static auto* numbers = new std::unordered_multimap<uint64_t, uint64_t>;  // by content
  return *numbers;
}

// Of one with the same content; 0: there is none.
uint64_t take_spare(uint64_t content) {
  std::lock_guard<std::mutex> lock(tables_mutex());
  auto found = spare().find(content);
  if (found == spare().end()) return 0;
  uint64_t number = found->second;
  spare().erase(found);
  return number;
}

}  // namespace

void send_description(HandleState* state, void* handle) {
  Session* s = session();
  if (!s) return;
  static auto* mutex = new std::mutex;  // two threads may use it at once
  std::lock_guard<std::mutex> lock(*mutex);
  if (state->unsent.empty()) return;
  state->number = take_spare(state->content);
  if (!state->number) {
    for (const std::string& f : state->unsent) send_frame(s, f.data(), f.size(), kNoReply);
    state->number = reinterpret_cast<uint64_t>(handle);
  }
  state->unsent.clear();
}

bool retire(HandleState* state) {
  if (!state->number) return true;  // it was never sent
  std::lock_guard<std::mutex> lock(tables_mutex());
  if (spare().size() >= kMostSpare) return false;
  spare().emplace(state->content, state->number);
  return true;
}

int Frame::describe() {
  HandleState* described = created_in_ ? created_in_->find(created_) : object_;
  bool at_server = refused_ || described->number;
  int code = at_server ? post() : kSuccess;
  if (!at_server) described->unsent.emplace_back(packer_.data(), packer_.size());
  if (!at_server || position_) keep_content();  // the code may be an earlier call's
  return code;
}

}  // namespace mnemosyne
