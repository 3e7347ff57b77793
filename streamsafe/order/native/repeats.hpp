// Conflicts that come again and again: who has judged one says that the answer will be the same, and from then on they are
// only counted here.
#pragma once
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace streamsafe {

// Numbers under which a conflict is known again.
struct Again {
  uint64_t places = 14695981039346656037ull;  // by its places: what was reported once is counted
  uint64_t all = 0;                            // with all else by which it may be suppressed
};

class Judged {
 public:
  static constexpr size_t LIMIT = 4096;

  // Whether it is one of those; then it is counted.
  bool count(const Again& again) {
    if (counts_.empty()) return false;
    auto found = counts_.find(again.places);
    if (found == counts_.end()) found = counts_.find(again.all);
    if (found == counts_.end()) return false;
    ++found->second;
    return true;
  }

  // From now on the answer is known. False: there are too many.
  bool add(uint64_t number) {
    if (counts_.size() >= LIMIT) return false;
    counts_.try_emplace(number, 0);
    return true;
  }

  void clear() { counts_.clear(); }

  // visit(number, count) for those that came since the last time.
  template <class F>
  void take(F&& visit) {
    for (auto& [number, count] : counts_) {
      if (count) visit(number, count);
      count = 0;
    }
  }
  size_t came() const {
    return size_t(std::count_if(counts_.begin(), counts_.end(), [](auto& each) { return each.second != 0; }));
  }

 private:
  std::unordered_map<uint64_t, uint64_t> counts_;
};

// What the program allows, in the words of who judges: a number for the calling thread's blocks, and ranges of memory.
class Allowed {
 public:
  static uint64_t& here() {
    static thread_local uint64_t number = 0;
    return number;
  }
  static bool meant(uint64_t start, uint64_t stop) {
    std::lock_guard<std::mutex> guard(mutex_);
    return std::any_of(ranges_.begin(), ranges_.end(), [&](auto& each) { return each.first <= start && stop <= each.second; });
  }
  static void set(std::vector<std::pair<uint64_t, uint64_t>> ranges) {
    std::lock_guard<std::mutex> guard(mutex_);
    ranges_ = std::move(ranges);
  }

 private:
  static inline std::mutex mutex_;
  static inline std::vector<std::pair<uint64_t, uint64_t>> ranges_;
};

}  // namespace streamsafe
