// A hash table from addresses (any number above 1) to small values, and a pointer that counts references.
// Neither is safe in several threads: the core's owner holds a lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace streamsafe {

using Addr = uint64_t;

// Open addressing with linear probing. A pointer to a value is good until the next insertion.
template <class V>
class Flat {
 public:
  explicit Flat(size_t slots = 64) : keys_(slots, EMPTY), values_(slots) {}

  V* find(Addr key) {
    for (size_t i = slot(key);; i = next(i)) {
      if (keys_[i] == key) return &values_[i];
      if (keys_[i] == EMPTY) return nullptr;
    }
  }

  V& operator[](Addr key) {
    if (V* found = find(key)) return *found;
    if ((taken_ + 1) * 2 > keys_.size()) rebuild();
    size_t i = slot(key);
    while (keys_[i] > ERASED) i = next(i);
    if (keys_[i] == EMPTY) ++taken_;
    ++size_;
    keys_[i] = key;
    values_[i] = V();
    return values_[i];
  }

  void erase(Addr key) {
    for (size_t i = slot(key); keys_[i] != EMPTY; i = next(i)) {
      if (keys_[i] != key) continue;
      --size_;
      if (keys_[next(i)] == EMPTY) {
        keys_[i] = EMPTY;
        --taken_;
      } else {
        keys_[i] = ERASED;
      }
      values_[i] = V();
      return;
    }
  }

  // A small table stays where it is: it is still in the processor's cache.
  void clear() {
    if (!taken_) return;
    if (keys_.size() > 1024) {
      *this = Flat(256);
      return;
    }
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] == EMPTY) continue;
      keys_[i] = EMPTY;
      values_[i] = V();
    }
    taken_ = size_ = 0;
  }

  template <class F>
  void each(F&& visit) {
    for (size_t i = 0; i < keys_.size(); ++i)
      if (keys_[i] > ERASED) visit(keys_[i], values_[i]);
  }

  size_t size() const { return size_; }

 private:
  static constexpr Addr EMPTY = 0, ERASED = 1;

  size_t slot(Addr key) const { return (key * 0x9E3779B97F4A7C15ull >> 24) & (keys_.size() - 1); }
  size_t next(size_t i) const { return (i + 1) & (keys_.size() - 1); }

  void rebuild() {  // larger, or only without the erased ones
    std::vector<Addr> keys((size_ + 1) * 4 > keys_.size() ? keys_.size() * 2 : keys_.size(), EMPTY);
    std::vector<V> values(keys.size());
    keys.swap(keys_);
    values.swap(values_);
    taken_ = size_;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] <= ERASED) continue;
      size_t j = slot(keys[i]);
      while (keys_[j] != EMPTY) j = next(j);
      keys_[j] = keys[i];
      values_[j] = std::move(values[i]);
    }
  }

  std::vector<Addr> keys_;
  std::vector<V> values_;
  size_t taken_ = 0, size_ = 0;  // slots that end no search; keys
};

// T has a member `uint32_t refs = 0`.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(T* object) : object_(object) {
    if (object_) ++object_->refs;
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ~Ref() {
    if (object_ && --object_->refs == 0) delete object_;
  }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const Ref& other) const { return object_ == other.object_; }
  bool operator!=(const Ref& other) const { return object_ != other.object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace streamsafe
