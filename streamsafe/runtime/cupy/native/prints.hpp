// Samples of what asynchronous copies read from pinned memory, as streamsafe/runtime/pinned/contents.py says: one that changed
// before the host waited for the copy was overwritten.
#pragma once
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>
#include "core.hpp"

namespace streamsafe::cupy {

class Prints {
 public:
  struct Changed {
    Addr start, size;
    Id site;
  };

  // How many copies are pending.
  size_t count() const { return count_; }

  // visit(site) for where each copy was enqueued.
  template <class F>
  void sites(F&& visit) const {
    for (auto& [start, sources] : at_)
      for (auto& source : sources) visit(source->site);
  }

  // A copy of `size` bytes from `start` was enqueued on a timeline, whose operation number `epoch` it is.
  void watch(Id line, Addr start, Addr size, Count epoch, Id site) {
    const Addr stop = start + size;
    const uint64_t value = sample(start, size);
    Source* found = nullptr;
    for (auto& source : at_[start])
      // the same bytes again: the copy before is done when this one is
      if (source->stop == stop && source->line == line && (!source->pending || source->value == value)) {
        found = source.get();
        break;
      }
    if (!found) {
      if (sources_ >= LIMIT) forget_done();
      at_[start].push_back(std::make_unique<Source>(Source{start, stop, line}));
      found = at_[start].back().get();
      longest_ = std::max(longest_, size);
      ++sources_;
    }
    found->value = value;
    found->number = ++numbers_;
    found->epoch = epoch;
    found->site = site;
    if (!found->pending) ++count_;
    found->pending = true;
    auto& queue = queues_[line];
    if (queue.size() >= LIMIT) shorten(queue);
    queue.push_back({found, found->number});
  }

  // The host has waited for something: looks again at the sources of copies that are now complete. `passed(line, epoch)`:
  // whether the host comes after an operation.
  template <class P>
  std::vector<Changed> check(P&& passed) {
    std::vector<Changed> changed;
    for (auto& [line, queue] : queues_) {
      while (!queue.empty()) {
        auto [source, number] = queue.front();
        if (source->number == number && source->pending) {
          if (!passed(line, source->epoch)) break;
          source->pending = false;
          --count_;
          if (sample(source->start, source->stop - source->start) != source->value) changed.push_back({source->start, source->stop - source->start, source->site});
        }
        queue.pop_front();
      }
    }
    return changed;
  }

  // The memory goes back to its pool, or a write to it was seen: its contents may change.
  void forget(Addr start, Addr stop) {
    if (!count_) return;
    auto it = at_.upper_bound(start > longest_ ? start - longest_ : 0);
    for (; it != at_.end() && it->first < stop; ++it)
      for (auto& source : it->second)
        if (source->pending && start < source->stop) {
          source->pending = false;
          --count_;
        }
  }

  // Nothing is pending.
  void clear() {
    queues_.clear();
    at_.clear();
    longest_ = 0;
    count_ = sources_ = 0;
  }

 private:
  static constexpr size_t LIMIT = 1024, SAMPLE = 1024;

  struct Source {
    Addr start, stop;
    Id line;
    bool pending = false;
    uint64_t number = 0;
    Count epoch = 0;
    Id site = 0;
    uint64_t value = 0;
  };
  using Queue = std::deque<std::pair<Source*, uint64_t>>;

  // Stands for the bytes that are looked at: all of a small range, of a large one its ends and its middle.
  static uint64_t sample(Addr start, Addr size) {
    auto* bytes = reinterpret_cast<const char*>(start);
    if (size <= 3 * SAMPLE) return digest(bytes, size, size);
    return digest(bytes + size - SAMPLE, SAMPLE, digest(bytes + size / 2, SAMPLE, digest(bytes, SAMPLE, size)));
  }

  // A polynomial in an odd number, in eight lanes: ranges that differ in one word never have the same.
  static uint64_t digest(const char* bytes, size_t size, uint64_t seed) {
    constexpr uint64_t A = 0x9E3779B97F4A7C15ull;
    constexpr size_t LANES = 8;
    uint64_t lanes[LANES] = {seed};
    size_t at = 0;
    for (; at + sizeof(lanes) <= size; at += sizeof(lanes)) {
      uint64_t words[LANES];
      std::memcpy(words, bytes + at, sizeof(words));
      for (size_t i = 0; i < LANES; ++i) lanes[i] = lanes[i] * A + words[i];
    }
    for (; at < size; at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + at, std::min<size_t>(8, size - at));
      lanes[0] = lanes[0] * A + word;
    }
    for (size_t i = 1; i < LANES; ++i) lanes[0] = (lanes[0] ^ (lanes[0] >> 32)) * A + lanes[i];
    return lanes[0];
  }

  // Sources that no copy is pending of go; queues mention them no more.
  void forget_done() {
    for (auto& [line, queue] : queues_) {
      Queue kept;
      for (auto& each : queue)
        if (each.first->pending && each.first->number == each.second) kept.push_back(each);
      queue.swap(kept);
    }
    sources_ = 0;
    for (auto it = at_.begin(); it != at_.end();) {
      auto& sources = it->second;
      sources.erase(std::remove_if(sources.begin(), sources.end(), [](auto& source) { return !source->pending; }), sources.end());
      sources_ += sources.size();
      it = sources.empty() ? at_.erase(it) : std::next(it);
    }
  }

  // Leaves the pending copies of a stream in its queue, and of many of these the younger half.
  void shorten(Queue& queue) {
    Queue kept;
    for (auto& each : queue)
      if (each.first->pending && each.first->number == each.second) kept.push_back(each);
    while (kept.size() > LIMIT / 2) {
      kept.front().first->pending = false;
      --count_;
      kept.pop_front();
    }
    queue.swap(kept);
  }

  std::map<Addr, std::vector<std::unique_ptr<Source>>> at_;
  std::map<Id, Queue> queues_;
  Addr longest_ = 0;
  size_t count_ = 0, sources_ = 0;
  uint64_t numbers_ = 0;
};

}  // namespace streamsafe::cupy
