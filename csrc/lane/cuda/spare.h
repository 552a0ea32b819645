// Library handles that no session uses. They are kept, for ending one stalls the device.
#pragma once

#include <mutex>
#include <vector>

namespace mnemosyne::cuda {

class SpareHandles {
 public:
  // Null: there is none.
  void* take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (handles_.empty()) return nullptr;
    void* handle = handles_.back();
    handles_.pop_back();
    return handle;
  }
  void give(void* handle) {
    if (!handle) return;
    std::lock_guard<std::mutex> lock(mutex_);
    handles_.push_back(handle);
  }

 private:
  std::mutex mutex_;
  std::vector<void*> handles_;
};

}  // namespace mnemosyne::cuda
