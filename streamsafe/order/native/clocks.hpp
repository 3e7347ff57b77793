// What knows of what: vector clocks, written as epochs wherever one number will do. As streamsafe/order/clocks.py.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>
#include "flat.hpp"

namespace streamsafe {

using Count = uint64_t;
using Id = uint32_t;  // of a timeline, a name or a site; 0: none

constexpr Count ENDLESS = Count(1) << 62;
constexpr size_t LOG_LENGTH = 16;

// Timeline id to count. Copies share their numbers until one of them is changed.
class Clock {
 public:
  Count of(Id id) const { return numbers_ && id < numbers_->at.size() ? numbers_->at[id] : 0; }
  size_t size() const { return numbers_ ? numbers_->at.size() : 0; }

  void set(Id id, Count count) {
    own();
    if (numbers_->at.size() <= id) numbers_->at.resize(id + 1, 0);
    numbers_->at[id] = count;
  }

  // Whether `other` says more of any timeline but `own` and `told`.
  bool behind(const Clock& other, Id own, Id told) const {
    if (other.numbers_ == numbers_) return false;
    const size_t n = other.size(), mine = size();
    for (size_t i = 0; i < n; ++i) {
      const Count theirs = other.numbers_->at[i];
      if (theirs && theirs > (i < mine ? numbers_->at[i] : 0) && i != own && i != told) return true;
    }
    return false;
  }

  void merge(const Clock& other, Id own_id = 0) {
    if (!other.numbers_ || other.numbers_ == numbers_) return;
    const Ref<Numbers> theirs = other.numbers_;
    own();
    if (numbers_->at.size() < theirs->at.size()) numbers_->at.resize(theirs->at.size(), 0);
    for (size_t i = 1; i < theirs->at.size(); ++i)
      if (i != own_id && numbers_->at[i] < theirs->at[i]) numbers_->at[i] = theirs->at[i];
  }

 private:
  struct Numbers {
    uint32_t refs = 0;
    std::vector<Count> at;
  };

  void own() {
    if (!numbers_) {
      numbers_ = Ref<Numbers>(new Numbers());
    } else if (numbers_->refs > 1) {
      auto* copy = new Numbers();
      copy->at = numbers_->at;
      numbers_ = Ref<Numbers>(copy);
    }
  }

  Ref<Numbers> numbers_;
};

enum class Kind : uint8_t { legacy, blocking, non_blocking, per_thread, host, function };

struct Timeline;
struct Event;
struct Capture;

// One record of an event: whose, how far it covers it, when and where, and when the source last did something.
struct Recorded {
  Ref<Timeline> source;
  Count covered = 0, sequence = 0;
  Id site = 0;
  Count idle_since = 0;
};

// A wait that happened, kept to explain a hazard. `device`: set when it was for all streams of a device.
struct Wait {
  Ref<Event> event;
  Recorded record;  // without a source: never recorded
  std::vector<Recorded> replaced;
  int device = -1;
  Count sequence = 0;
  Id site = 0;
};

// The last waits, the latest last, without memory of its own until the first.
class Log {
 public:
  void push(Wait&& wait) {
    if (waits_.size() < LOG_LENGTH) {
      waits_.push_back(std::move(wait));
    } else {
      waits_[first_] = std::move(wait);
      first_ = (first_ + 1) % LOG_LENGTH;
    }
  }
  size_t size() const { return waits_.size(); }
  const Wait& operator[](size_t i) const { return waits_[(first_ + i) % waits_.size()]; }

 private:
  std::vector<Wait> waits_;
  size_t first_ = 0;
};

// One queue, or one host thread.
struct Timeline {
  uint32_t refs = 0;
  Count serial = 0;  // unlike that of any other timeline
  Id id = 0;     // 0: it was destroyed, and nothing mentions it any more
  Id label = 0;  // the id by which the caller knows it; in a capture's program that of the eager timeline
  int device = 0;
  uint64_t key = 0;  // of a host thread
  Kind kind = Kind::non_blocking;
  bool shown = false, gone = false;
  Count count = 1, last = 0;
  Clock clock;
  Capture* capture = nullptr;
  std::vector<Timeline*>* peers = nullptr;  // whom it waits for at a launch: the legacy stream's barrier
  Log log;
  std::vector<Count> served;  // by timeline id: the last access that needed something of it, ordered by no host

  bool knows(Id line, Count upto) const { return line == id || clock.of(line) >= upto; }

  void serve(Id line, Count sequence) {
    if (served.size() <= line) served.resize(line + 1, 0);
    served[line] = sequence;
  }

  // Know what timeline `from` (0: none) knew up to `reach`, and all of `theirs`.
  void learn(Id from, Count reach, const Clock& theirs) {
    if (from == id || (from && clock.of(from) >= reach)) return;
    if (!from && !clock.behind(theirs, id, 0)) return;
    if (shown) {
      ++count;
      shown = false;
    }
    if (from) clock.set(from, reach);
    if (clock.behind(theirs, id, from)) {
      const Count told = from ? clock.of(from) : 0;
      clock.merge(theirs, id);
      if (from) clock.set(from, told);
    }
  }
  void learn(Timeline& source) {
    if (&source == this) return;
    source.shown = true;
    learn(source.id, source.count, source.clock);
  }
};

// A mutable cell: a record overwrites it, a wait copies it.
struct Event {
  uint32_t refs = 0;
  Count serial = 0;  // unlike that of any other event
  Clock clock;
  Recorded record;  // without a source: none
  std::vector<Recorded> replaced;
  uint32_t capture = 0;  // the graph in whose capture it was recorded; outside it orders nothing

  void stamp(Timeline& source, Count sequence, Id site, uint32_t captured = 0) {
    if (record.source && record.source.get() != &source) {
      replaced.insert(replaced.begin(), record);
      if (replaced.size() > LOG_LENGTH) replaced.pop_back();
    }
    record = Recorded{Ref<Timeline>(&source), captured ? 0 : source.count, sequence, site, source.last};
    capture = captured;
    if (captured) clock = Clock();
  }
};

}  // namespace streamsafe
