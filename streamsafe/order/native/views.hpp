// Exact overlap of strided views, from addresses alone. As streamsafe/order/views.py.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>
#include "flat.hpp"

namespace streamsafe {

constexpr size_t FEW_RUNS = 4;
constexpr size_t WORK_LIMIT = 1 << 18;

enum class Tri : uint8_t { no, yes, unknown };

// Equal runs of bytes at regular distances: (count, distance) for each level, the widest first.
struct View {
  Addr start = 0, run = 0;
  std::vector<std::pair<Addr, Addr>> dims;

  Addr stop() const {
    Addr end = start + run;
    for (auto& [count, distance] : dims) end += (count - 1) * distance;
    return end;
  }
  size_t size() const {
    size_t number = 1;
    for (auto& dim : dims) number *= dim.first;
    return number;
  }
  bool operator==(const View& other) const {
    return start == other.start && run == other.run && dims == other.dims;
  }
  std::vector<Addr> starts() const {
    std::vector<Addr> found{start};
    for (auto& [count, distance] : dims) {
      std::vector<Addr> next;
      next.reserve(found.size() * count);
      for (Addr each : found)
        for (Addr i = 0; i < count; ++i) next.push_back(each + i * distance);
      found.swap(next);
    }
    return found;
  }
};

// The bytes of an array with the fewest and longest runs; `strides` in bytes. `start` is its lowest address.
inline View normalize(Addr start, int dims, const int64_t* shape, const int64_t* strides, Addr itemsize, int64_t unit) {
  std::vector<std::pair<Addr, Addr>> sorted;  // (distance, count)
  for (int i = 0; i < dims; ++i) {
    const Addr distance = Addr(std::llabs(strides[i] * unit));
    if (shape[i] > 1 && distance) sorted.emplace_back(distance, Addr(shape[i]));
  }
  std::sort(sorted.begin(), sorted.end());
  View view{start, itemsize, {}};
  for (auto& [distance, count] : sorted) {
    auto& kept = view.dims;
    if (kept.empty() && distance <= view.run) {
      view.run += (count - 1) * distance;
    } else if (!kept.empty() && distance == kept.back().first * kept.back().second) {
      kept.back().first *= count;
    } else {
      kept.emplace_back(count, distance);
    }
  }
  std::reverse(view.dims.begin(), view.dims.end());
  return view;
}

namespace detail {
inline bool touches(const View& view, size_t level, Addr begin, Addr end, Addr start, Addr stop) {
  // `begin` and `end`: the view from this level on, moved to where one copy of it lies
  if (stop <= start || begin >= stop || end <= start) return false;
  if (begin >= start || level == view.dims.size()) return true;
  const auto [count, distance] = view.dims[level];
  const Addr length = end - begin - (count - 1) * distance;  // of one copy
  const Addr last = (start - begin) / distance;
  if (last + 1 < count && begin + (last + 1) * distance < stop) return true;
  for (Addr i = std::min(last, count - 1) + 1; i-- > 0;) {
    const Addr copy = begin + i * distance;
    if (copy + length <= start) return false;
    if (touches(view, level + 1, copy, copy + length, start, stop)) return true;
  }
  return false;
}

inline bool interleaved(const View& a, const View& b) {
  const Addr distance = a.dims.back().second;
  for (const View* view : {&a, &b})
    for (auto& dim : view->dims)
      if (dim.second % distance) return false;
  const Addr offset = (b.start % distance + distance - a.start % distance) % distance;
  return a.run <= offset && offset + b.run <= distance;
}
}  // namespace detail

// Whether a view has a byte in [start, stop).
inline bool touches(const View& view, Addr start, Addr stop) {
  return detail::touches(view, 0, view.start, view.stop(), start, stop);
}

// Whether two views have a byte of [start, stop) in common.
inline Tri overlap(const View& a, const View& b, Addr start, Addr stop) {
  start = std::max({start, a.start, b.start});
  stop = std::min({stop, a.stop(), b.stop()});
  if (start >= stop) return Tri::no;
  if (a.dims.empty()) return touches(b, start, stop) ? Tri::yes : Tri::no;
  if (b.dims.empty()) return touches(a, start, stop) ? Tri::yes : Tri::no;
  if (a == b) return touches(a, start, stop) ? Tri::yes : Tri::no;
  if (detail::interleaved(a, b)) return Tri::no;
  const View &few = a.size() <= b.size() ? a : b, &many = &few == &a ? b : a;
  if (few.size() > WORK_LIMIT) return Tri::unknown;
  for (Addr begin : few.starts()) {
    const Addr low = std::max(begin, start), high = std::min(begin + few.run, stop);
    if (low < high && touches(many, low, high)) return Tri::yes;
  }
  return Tri::no;
}

}  // namespace streamsafe
