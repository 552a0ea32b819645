#include "streams.h"

namespace mnemosyne::cuda {
namespace {

constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

}  // namespace

Streams::Streams(std::atomic<uint32_t>* words) : words_(words) {
  for (size_t i = kMost; i > 0; --i) free_words_.push_back(i - 1);
}

void Streams::destroy_all() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [number, stream] : by_number_) {
    if (stream->mark) driver().cuEventDestroy_v2(stream->mark);
    driver().cuStreamDestroy_v2(stream->handle);
  }
  by_number_.clear();
  last_ = null_ = nullptr;
}

bool Streams::add(uint64_t number, Stream handle, bool blocking) {
  if (free_words_.empty()) return false;
  size_t index = free_words_.back();
  free_words_.pop_back();
  words_[index].store(0, std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(mutex_);
  auto& stream = by_number_[number];
  stream = std::make_unique<SessionStream>(handle, blocking, &words_[index], index);
  if (number == 0) null_ = stream.get();
  if (number != 0 && blocking) ++blocking_;
  return true;
}

Stream Streams::remove(uint64_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = by_number_.find(number);
  if (found == by_number_.end()) return nullptr;
  SessionStream* stream = found->second.get();
  Stream handle = stream->handle;
  if (stream->mark) driver().cuEventDestroy_v2(stream->mark);
  if (stream->blocking) --blocking_;
  free_words_.push_back(stream->index);
  last_ = nullptr;
  by_number_.erase(found);
  return handle;
}

SessionStream* Streams::find(uint64_t number) {
  if (last_ && number == last_number_) return last_;
  auto found = by_number_.find(number);
  if (found == by_number_.end()) return nullptr;
  last_number_ = number;
  return last_ = found->second.get();
}

int Streams::order(SessionStream* s) {
  if (blocking_ == 0) return kSuccess;
  if (s == null_) {
    for (auto& [number, other] : by_number_) {
      if (!other->blocking || other.get() == null_ || other->idle()) continue;
      if (int code = mark(other.get())) return code;
      if (int code = driver().cuStreamWaitEvent(s->handle, other->mark, 0)) return code;
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

void Streams::count(SessionStream* s) {
  s->counted.store(s->counted.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  operations_.fetch_add(1);
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
  if (s->fenced == counted) return kSuccess;
  s->fenced = counted;
  auto word = reinterpret_cast<DevicePointer>(s->finished);
  return driver().cuStreamWriteValue32_v2(s->handle, word, counted, 0);
}

int Streams::fence_all() {
  for (auto& [number, stream] : by_number_) {
    if (int code = fence(stream.get())) return code;
  }
  return kSuccess;
}

int Streams::join_all(Stream waiter) {
  for (auto& [number, stream] : by_number_) {
    if (stream->idle()) continue;
    if (int code = mark(stream.get())) return code;
    if (int code = driver().cuStreamWaitEvent(waiter, stream->mark, 0)) return code;
  }
  return kSuccess;
}

int Streams::synchronize() {
  if (int code = fence_all()) return code;
  for (auto& [number, stream] : by_number_) {
    if (stream->idle()) continue;
    if (int code = driver().cuStreamSynchronize(stream->handle)) return code;
  }
  return kSuccess;
}

bool Streams::idle() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [number, stream] : by_number_) {
    if (!stream->idle()) return false;
  }
  return true;
}

}  // namespace mnemosyne::cuda
