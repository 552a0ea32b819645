#include "streams.h"

#include <algorithm>

namespace mnemosyne::cuda {
namespace {

constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

}  // namespace

Streams::Streams(std::atomic<uint32_t>* words) : words_(words) {
  for (size_t i = kMost; i > 0; --i) free_words_.push_back(i - 1);
}

bool Streams::add(uint64_t number, Stream handle, bool blocking) {
  std::lock_guard<std::mutex> lock(mutex_);
  sweep();
  if (free_words_.empty()) return false;
  size_t index = free_words_.back();
  free_words_.pop_back();
  words_[index].store(0, std::memory_order_relaxed);
  all_.push_back(std::make_unique<SessionStream>(handle, blocking, &words_[index], index));
  SessionStream* added = by_number_[number] = all_.back().get();
  if (number == 0) null_ = added;
  if (number != 0 && blocking) ++blocking_;
  return true;
}

bool Streams::remove(uint64_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = by_number_.find(number);
  if (found == by_number_.end()) return false;
  found->second->removed = true;
  last_ = nullptr;
  by_number_.erase(found);
  sweep();
  return true;
}

// Ends the removed streams that have nothing left to do: no word or reply to be written.
void Streams::sweep() {
  auto is_over = [this](const std::unique_ptr<SessionStream>& s) {
    if (!s->removed || driver().cuStreamQuery(s->handle) == kNotReady) return false;
    if (s->blocking) --blocking_;
    free_words_.push_back(s->index);
    destroy(s.get());
    return true;
  };
  all_.erase(std::remove_if(all_.begin(), all_.end(), is_over), all_.end());
}

void Streams::destroy(SessionStream* s) {
  if (s->mark) driver().cuEventDestroy_v2(s->mark);
  driver().cuStreamDestroy_v2(s->handle);
}

void Streams::destroy_all() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& stream : all_) destroy(stream.get());
  all_.clear();
  by_number_.clear();
  last_ = null_ = nullptr;
}

SessionStream* Streams::find(uint64_t number) {
  if (redirect_) return redirect_;
  if (last_ && number == last_number_) return last_;
  auto found = by_number_.find(number);
  if (found == by_number_.end()) return nullptr;
  last_number_ = number;
  return last_ = found->second;
}

bool Streams::holds_up_null(const SessionStream& s) const {
  return s.blocking && &s != null_ && !s.idle();
}

bool Streams::is_done(SessionStream* s) {
  if (!s->idle()) return false;
  if (s != null_ || blocking_ == 0) return true;
  return std::none_of(all_.begin(), all_.end(),
                      [this](const auto& other) { return holds_up_null(*other); });
}

int Streams::order(SessionStream* s) {
  if (blocking_ == 0 || s->captures) return kSuccess;
  if (s == null_) {
    for (auto& other : all_) {
      uint32_t counted = other->counted.load(std::memory_order_relaxed);
      if (!holds_up_null(*other) || other->awaited == counted) continue;
      if (int code = mark(other.get())) return code;
      if (int code = driver().cuStreamWaitEvent(s->handle, other->mark, 0)) return code;
      other->awaited = counted;
    }
  } else if (s->blocking && s->ordered != null_->counted.load() && !null_->idle()) {
    if (int code = mark(null_)) return code;
    if (int code = driver().cuStreamWaitEvent(s->handle, null_->mark, 0)) return code;
    s->ordered = null_->counted.load();
  }
  return kSuccess;
}

// Records an event after the stream's work so far, unless that has been done already.
int Streams::mark(SessionStream* s) {
  if (s->mark && s->marked == s->counted.load(std::memory_order_relaxed)) return kSuccess;
  if (!s->mark) {
    if (int code = driver().cuEventCreate(&s->mark, kDisableTiming)) return code;
  }
  s->marked = s->counted.load(std::memory_order_relaxed);
  return driver().cuEventRecordWithFlags(s->mark, s->handle, 0);
}

void Streams::count(SessionStream* s, uint32_t operations) {
  s->counted.store(s->counted.load(std::memory_order_relaxed) + operations,
                   std::memory_order_relaxed);
}

void Streams::uncount(SessionStream* s) {
  s->counted.store(s->counted.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

int Streams::fence_sometimes(SessionStream* s) {
  uint32_t unfenced = s->counted.load(std::memory_order_relaxed) - s->fenced;
  return unfenced < kFenceEvery ? kSuccess : fence(s);
}

int Streams::fence(SessionStream* s) {
  uint32_t counted = s->counted.load(std::memory_order_relaxed);
  if (s->fenced == counted || s->captures) return kSuccess;
  s->fenced = counted;
  auto word = reinterpret_cast<DevicePointer>(s->finished);
  return driver().cuStreamWriteValue32_v2(s->handle, word, counted, 0);
}

int Streams::fence_all() {
  for (auto& stream : all_) {
    if (int code = fence(stream.get())) return code;
  }
  return kSuccess;
}

int Streams::fence_reached() {
  for (auto& stream : all_) {
    if (stream->finished->load(std::memory_order_acquire) != stream->fenced) continue;
    if (int code = fence(stream.get())) return code;
  }
  return kSuccess;
}

int Streams::join_all(Stream waiter) {
  for (auto& stream : all_) {
    if (stream->idle()) continue;
    if (int code = mark(stream.get())) return code;
    if (int code = driver().cuStreamWaitEvent(waiter, stream->mark, 0)) return code;
  }
  return kSuccess;
}

// Idle ones, too: a reply may still have to be written behind the last fence.
int Streams::synchronize() {
  if (int code = fence_all()) return code;
  for (auto& stream : all_) {
    if (int code = driver().cuStreamSynchronize(stream->handle)) return code;
  }
  return kSuccess;
}

bool Streams::idle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::all_of(all_.begin(), all_.end(), [](const auto& stream) { return stream->idle(); });
}

}  // namespace mnemosyne::cuda
