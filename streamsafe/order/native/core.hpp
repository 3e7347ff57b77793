// The concrete engine: the checker's operations and the conflicts they find. As streamsafe/order/checker.py, whose docstrings
// say what each operation means; plain C++17, no torch, no Python, no CUDA. The caller holds `mutex`.
//
// An operation that finds conflicts leaves them in `reports`, as integers that streamsafe/order/native/reports.py reads: everything
// that happens once for each hazard is done there.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>
#include "repeats.hpp"
#include "clocks.hpp"
#include "flat.hpp"
#include "memory.hpp"
#include "views.hpp"

namespace streamsafe {

using Key = uint64_t;  // of an event, a host thread or anything else with a clock: the caller's, above 1; 0: none
using Report = std::vector<int64_t>;

enum class ReportKind : int64_t { pair, latent, overwritten, violation, overlaid };
enum class CaptureMode : uint8_t { global, thread_local_, relaxed };
enum class Violation : int64_t {
  wait_outside,  // a captured stream waits for an event of work that is not captured
  legacy_joins,
  other_capture,
  stream_wait,  // something is waited for that a capture forbids
  device_wait,
  begin_on_legacy,
  begin_twice,
  implicit_wait,
  end_elsewhere,
  unjoined,
  generator,    // numbers are drawn from one that the graph does not keep
  host_work,    // the host wrote what the graph copies to the device
  unforked,     // work on a stream that takes no part in the capture
};

// What an operation touches. `shape` and `strides` (times `unit` bytes) only where the bytes are not contiguous.
struct Use {
  int space = 0;
  Addr start = 0, stop = 0;
  Mode mode = Mode::reads;
  Sure certain = ALL;
  int dims = 0;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;
  Addr itemsize = 1;
  int64_t unit = 1;
  Id name = 0;
};

// Neighbours that one operation wrote become one cell when there are more (FEW_CELLS of streamsafe/order/decide.py).
constexpr size_t few_cells = 8;

struct Piece {
  Addr start, stop;
  std::shared_ptr<const View> view;
};

// One access of a graph.
struct CapturedAccess {
  int space = 0;
  Addr start = 0, stop = 0;
  std::shared_ptr<const View> view;
  Mode mode = Mode::reads;
  Sure certain = ALL;
  Id operation = 0, site = 0, name = 0;
  Ref<Block> block;
};

// What a capture left; it knows its previous launch.
struct Graph {
  uint32_t key = 0;
  bool private_pool = false;
  bool managed = false;  // who made it sees to the order of the launches itself
  bool dropped = false;  // it will not be launched again
  Id site = 0;
  Clock clock;
  std::vector<CapturedAccess> accesses;
  std::vector<Report> reports;  // missing edges between its branches and violations, found once
  std::vector<Ref<Event>> waits, records;
  std::set<const Block*> reported;
};

// What a tape holds: for each operation its number, how many integers follow, and these (streamsafe/order/native/tape.py reads it).
enum class TapeEntry : int64_t {
  stream, destroy_stream, host_function, event, destroy_event, record, wait, synchronize_stream, synchronize_event,
  synchronize_device, host_edge, forget_host, access, allocate, free, record_stream, release_block, capture_begin,
  capture_end, replay, gradient,
};

class Core;

struct Capture;

// What an operation's accesses replaced, for one that then was not enqueued. Readers other than the last are kept, views are not.
struct Undo {
  struct Saved {
    int space;
    Addr start, stop;
    Record write, read;
    std::vector<Record> readers;
  };
  Core* program = nullptr;  // none: there is nothing to undo
  std::vector<Record> made;
  std::vector<Saved> saved;
  size_t tape_start = 0, tape_stop = 0;
  uint32_t graph = 0;    // of a capture: whose accesses they are too, and how many there were
  size_t captured = 0;

  void clear() {
    program = nullptr;
    made.clear();
    saved.clear();
    tape_start = tape_stop = graph = captured = 0;
  }
  bool is_made(const Record& record) const {
    return std::any_of(made.begin(), made.end(), [&](const Record& each) { return each.same(record); });
  }
  void save(int space, const Cell& cell) {
    if (is_made(cell.write) || is_made(cell.read)) return;
    saved.push_back(Saved{space, cell.start, cell.stop, cell.write, cell.read, {}});
    if (cell.has_readers()) saved.back().readers = cell.more->readers;
  }
};

// A capture in progress.
struct Capture {
  Graph* graph = nullptr;
  std::unique_ptr<Core> program;
  Timeline* origin = nullptr;
  CaptureMode mode = CaptureMode::relaxed;
  Key host = 0;
  std::thread::id thread;  // that began it
  std::vector<Timeline*> members;
  std::map<Id, Timeline*> inner;  // by the eager timeline's id
  std::map<std::tuple<Mode, int, Addr, Addr, std::vector<std::pair<Addr, Addr>>>, size_t> index;
  std::map<std::pair<int, const Block*>, std::vector<std::pair<Addr, Addr>>> filled;
};

class Core {
 public:
  std::mutex mutex;
  bool taping = false;          // whether operations are recorded
  std::vector<int64_t> tape;    // what was recorded and not yet taken
  size_t tape_taken = 0;        // how much was taken before
  std::vector<Report> reports;
  Judged judged;                // conflicts of which nobody need be asked again

  explicit Core(bool threads = false) : threads_(threads), blocks_(std::make_shared<std::map<int, Blocks>>()) {
    host_ = make(-1, Kind::host);
    if (!threads_) hosts_[0] = host_;
  }

  // A program of its own begins: nothing is known of what came before.
  void reset(bool threads) {
    reports.clear();
    captures_.clear();
    graphs_.clear();
    for (auto& shadow : shadows_) shadow.clear();
    for (auto& [space, blocks] : *blocks_) blocks.clear();  // no capture shares them any more
    events_.clear();
    hosts_.clear();
    objects_.clear();
    devices_.clear();
    gone_.clear();
    lines_.clear();
    free_ids_.clear();
    suspected_.clear();
    overlaid_.clear();
    overlays_.clear();
    judged.clear();
    hit_.clear();
    debt_ = 0;
    sweep_at_ = SWEEP_EVERY;
    sequence_ = 0;
    threads_ = threads;
    host_ = make(-1, Kind::host);
    if (!threads_) hosts_[0] = host_;
  }

  // -- the tape ------------------------------------------------------------------------------------------------------

  template <class... T>
  void say(TapeEntry entry, T... values) {
    if (!taping) return;
    tape.push_back(int64_t(entry));
    tape.push_back(int64_t(sizeof...(values)));
    (tape.push_back(int64_t(values)), ...);
  }

  void clear_tape() {
    tape_taken += tape.size();
    tape.clear();
  }

  void say_uses(Id line, const Use* uses, size_t n, Id operation, Id site, Key host) {
    tape.push_back(int64_t(TapeEntry::access));
    const size_t length = tape.size();
    tape.push_back(0);
    for (int64_t value : {int64_t(line), int64_t(operation), int64_t(site), int64_t(host)}) tape.push_back(value);
    for (size_t i = 0; i < n; ++i) {
      const Use& use = uses[i];
      for (int64_t value : {int64_t(use.space), int64_t(use.start), int64_t(use.stop), int64_t(use.mode), int64_t(use.certain == ALL),
                            int64_t(use.itemsize), int64_t(use.dims)})
        tape.push_back(value);
      for (int d = 0; d < use.dims; ++d) tape.push_back(use.shape[d]);
      for (int d = 0; d < use.dims; ++d) tape.push_back(use.strides[d] * use.unit);
    }
    tape[length] = int64_t(tape.size() - length - 1);
  }

  // -- streams and events --------------------------------------------------------------------------------------------

  Timeline& stream(int device, Kind kind) {
    Device& its = device_of(device);
    Timeline& line = kind == Kind::legacy ? *its.legacy : add(its, make(device, kind));
    say(TapeEntry::stream, line.id, device, kind);
    return line;
  }

  // The timeline of an id; nullptr for one that was destroyed.
  Timeline* line(Id id) { return id < lines_.size() ? lines_[id].get() : nullptr; }

  void destroy_stream(Timeline& line) {
    if (line.kind == Kind::legacy || line.gone) return;
    say(TapeEntry::destroy_stream, line.id);
    lose(line);
  }

  Timeline& host_function(Timeline& stream, Key host) {
    ++sequence_;
    launch(stream, host_of(host));
    Timeline& function = add(device_of(stream.device), make(stream.device, Kind::function));
    say(TapeEntry::host_function, stream.id, function.id, host);
    function.learn(stream);
    stream.learn(function.id, ENDLESS, Clock());
    return function;
  }

  void new_event(Key event) {
    say(TapeEntry::event, event);
    events_[event] = Ref<Event>();
  }
  void destroy_event(Key event) {
    say(TapeEntry::destroy_event, event);
    events_.erase(event);
  }

  void record(Key key, Timeline& line, Key host = 0, Id site = 0, bool external = false) {
    say(TapeEntry::record, key, line.id, host, site, external);
    Event& event = event_of(key);
    ++sequence_;
    if (!line.capture) {
      launch(line, host_of(host));
      line.shown = true;
      event.clock = line.clock;
      event.stamp(line, sequence_, site);
    } else if (external) {
      line.capture->graph->records.push_back(Ref<Event>(&event));
    } else {
      line.capture->program->record(key, inner_of(line), 0, site);
      event.stamp(line, sequence_, site, line.capture->graph->key);
    }
  }

  bool wait(Timeline& line, Key key, Key host = 0, Id site = 0, bool external = false, bool implicit = false) {
    say(TapeEntry::wait, line.id, key, host, site, external, implicit);
    Event& event = event_of(key);
    ++sequence_;
    Capture* capture = line.capture;
    Capture* captured = event.capture ? capture_of(event.capture) : nullptr;
    if (!capture && !captured) {
      if (event.capture) return true;
      launch(line, host_of(host));
      if (event.record.source) line.learn(event.record.source->id, event.record.covered, event.clock);
      if (!implicit) log(line, event, site);
      return true;
    }
    if (capture && external) {
      capture->graph->waits.push_back(Ref<Event>(&event));
      return true;
    }
    if (!captured) return event.record.source ? violation(Violation::wait_outside, line, nullptr, 0, site) : true;
    if (line.kind == Kind::legacy) return violation(Violation::legacy_joins, line, nullptr, 0, site);
    if (!capture) {
      join(*captured, line);
    } else if (capture != captured) {
      return violation(Violation::other_capture, line, nullptr, 0, site);
    }
    captured->program->wait(inner_of(line), key, 0, site);
    return true;
  }

  bool synchronize_stream(Timeline& line, Key host = 0, Id site = 0) {
    say(TapeEntry::synchronize_stream, line.id, host, site);
    if (!allowed(line.capture ? Subject::captured : Subject::eager, line, host, site)) return false;
    ++sequence_;
    Timeline& waiter = host_of(host);
    Wait wait;
    wait.record = Recorded{Ref<Timeline>(&line), line.count, sequence_, 0, line.last};
    wait.sequence = sequence_;
    wait.site = site;
    waiter.log.push(std::move(wait));
    waiter.learn(line);
    if (line.kind == Kind::legacy)
      for (Timeline* other : *line.peers) waiter.learn(*other);
    return true;
  }

  bool synchronize_event(Key key, Key host = 0, Id site = 0) {
    say(TapeEntry::synchronize_event, key, host, site);
    Ref<Event>* found = events_.find(key);
    Ref<Event> event = found ? *found : Ref<Event>();
    if (!event) {  // unrecorded
      event = Ref<Event>(new Event());
      event->serial = ++serials_();
    }
    Timeline& waiter = host_of(host);
    if (!allowed(event->capture ? Subject::captured : Subject::eager, waiter, host, site)) return false;
    if (event->capture) return true;
    ++sequence_;
    log(waiter, *event, site);
    if (event->record.source) waiter.learn(event->record.source->id, event->record.covered, event->clock);
    return true;
  }

  bool synchronize_device(int device, Key host = 0, Id site = 0) {
    say(TapeEntry::synchronize_device, device, host, site);
    Timeline& waiter = host_of(host);
    if (!allowed(Subject::device, waiter, host, site)) return false;
    ++sequence_;
    Device& its = device_of(device);
    Count idle_since = 0;
    for (Timeline* stream : its.streams) idle_since = std::max(idle_since, stream->last);
    Wait wait;
    wait.record = Recorded{Ref<Timeline>(its.legacy), 0, sequence_, 0, idle_since};
    wait.device = device;
    wait.sequence = sequence_;
    wait.site = site;
    waiter.log.push(std::move(wait));
    for (Timeline* stream : its.streams) waiter.learn(*stream);
    waiter.learn(0, 0, its.folded);
    drop_finished(its);
    return true;
  }

  void host_edge(Key source, Key target) {
    if (!threads_) return;
    say(TapeEntry::host_edge, source, target);
    Timeline* from = known_host(source);
    Timeline* to = known_host(target);
    if (from && to) {
      to->learn(*from);
    } else if (from) {
      from->shown = true;
      Clock& learner = objects_[target];
      learner.merge(from->clock);
      if (learner.of(from->id) < from->count) learner.set(from->id, from->count);
    } else if (to) {
      to->learn(0, 0, objects_[source]);
    } else {
      const Clock theirs = objects_[source];
      objects_[target].merge(theirs);
    }
  }

  void forget_host(Key host_or_lock) {
    say(TapeEntry::forget_host, host_or_lock);
    objects_.erase(host_or_lock);
    auto host = hosts_.find(host_or_lock);
    if (!host_or_lock || host == hosts_.end()) return;
    lose(*host->second);
    hosts_.erase(host);
  }

  // -- accesses ------------------------------------------------------------------------------------------------------

  // One operation is enqueued. True: it is done. False: `reports` has conflicts; the missing edges count from now on,
  // but the operation left no access: call again with `force` where it happens all the same.
  // `undo`: takes what `revoke` needs; one that is used for several accesses undoes them all.
  bool access(Timeline& line, const Use* uses, size_t n, Id operation, Id site, Key host = 0, bool force = false, Undo* undo = nullptr) {
    if (taping && !force) {
      const size_t start = tape_taken + tape.size();
      say_uses(line.id, uses, n, operation, site, host);
      if (undo) {
        if (undo->tape_stop != start) undo->tape_start = start;
        undo->tape_stop = tape_taken + tape.size();
      }
    }
    if (line.capture) {
      capture_access(line, uses, n, operation, site, undo);
      return true;
    }
    if (undo) undo->program = this;
    Timeline& waiter = host_of(host);
    auto look = [&](const State* before) {
      undo_ = undo;
      const bool done = general(line, waiter, uses, n, operation, site, before, force, false, nullptr);
      undo_ = nullptr;
      return done;
    };
    // the missing edges count by now: to look again would take them for waits that were needed
    if (force) return look(nullptr);
    State before;
    bool saved = false;
    if (line.kind != Kind::function && unsettled(line, waiter)) {
      if (line.kind == Kind::legacy && !captures_.empty())
        return look(nullptr);
      before = State{line.clock, line.count, line.shown};
      saved = true;
      launch(line, waiter);
    }
    // The usual case in one pass: whole cells, and in order.
    const Count sequence = sequence_ + 1;
    hit_.clear();
    for (size_t i = 0; i < n; ++i) {
      const Use& use = uses[i];
      if (use.start >= use.stop) continue;
      Cell* cell = shadow_of(use.space).at(use.start);
      size_t cells = 0;
      for (Addr at = use.start; at < use.stop; at = cell->stop, cell = cell->next) {
        if (!cell || cell->start != at || cell->stop > use.stop || use.dims || use.certain != ALL || cell->has_partial() ||
            (use.mode == Mode::writes ? ++cells > few_cells : other_graphs(*cell)) || !admits(*cell, line, use.mode, waiter, sequence))
          return look(saved ? &before : nullptr);
        hit_.emplace_back(cell, use.mode);
      }
    }
    sequence_ = line.last = sequence;
    if (line.shown) {
      ++line.count;
      line.shown = false;
    }
    const Record record{line.id, operation, site, 0, line.count, sequence};
    if (undo) {
      size_t i = 0;
      for (auto& [cell, mode] : hit_) {
        while (uses[i].start >= uses[i].stop || cell->start < uses[i].start || cell->start >= uses[i].stop) ++i;
        undo->save(uses[i].space, *cell);
      }
      undo->made.push_back(record);
    }
    for (auto& [cell, mode] : hit_) {
      if (mode == Mode::writes) cell->commit_write(record);
      else cell->commit_read(line, record);
    }
    return true;
  }

  // The operation was not enqueued after all: what its access replaced is there again, unless somebody came later.
  void revoke(Undo& undo) {
    if (!undo.program) return;
    if (undo.tape_start < undo.tape_stop && undo.tape_start >= tape_taken)  // who reads the tape has not seen it
      tape.erase(tape.begin() + std::ptrdiff_t(undo.tape_start - tape_taken), tape.begin() + std::ptrdiff_t(undo.tape_stop - tape_taken));
    if (Capture* capture = undo.graph ? capture_of(undo.graph) : nullptr) {
      for (auto it = capture->index.begin(); it != capture->index.end();) it = it->second >= undo.captured ? capture->index.erase(it) : std::next(it);
      capture->graph->accesses.resize(undo.captured);
    }
    undo.program->restore(undo);
    undo.clear();
  }

  // The conflicts that `access` would find, with no effect at all. True: none.
  bool check(Timeline& line, const Use* uses, size_t n, Id operation, Id site, Key host = 0) {
    if (line.capture) return true;
    return general(line, host_of(host), uses, n, operation, site, nullptr, false, true, nullptr);
  }

  // `host_access` in the usual case: with one host clock it leaves nothing to remember, and this one has no conflict. False:
  // it is not that simple, and nothing was done.
  bool host_in_order(const Use* uses, size_t n) {
    if (threads_ || taping) return false;
    const Count sequence = sequence_ + 1;
    for (size_t i = 0; i < n; ++i) {
      const Use& use = uses[i];
      if (use.start >= use.stop) continue;
      if (use.dims) return false;
      near_.clear();
      shadow_of(use.space).overlapping(use.start, use.stop, near_);
      for (Cell* cell : near_)
        if (cell->has_partial() || other_graphs(*cell) || !admits(*cell, *host_, use.mode, *host_, sequence)) return false;
    }
    sequence_ = host_->last = sequence;
    return true;
  }

  // The host reads or writes memory now.
  bool host_access(const Use* uses, size_t n, Id operation, Id site, Key host = 0, bool force = false) {
    if (!force && host_in_order(uses, n)) return true;
    if (taping && !force) say_uses(0, uses, n, operation, site, host);
    Timeline& line = host_of(host);
    return general(line, line, uses, n, operation, site, nullptr, force, false, nullptr);
  }
  bool check_host(const Use* uses, size_t n, Id operation, Id site, Key host = 0) {
    Timeline& line = host_of(host);
    return general(line, line, uses, n, operation, site, nullptr, false, true, nullptr);
  }

  // -- memory --------------------------------------------------------------------------------------------------------

  // A block is handed out. `stream` nullptr: the host runs its pool. `leftover`: whether an earlier owner's use is left
  // that the allocation stream is not ordered after.
  Block* allocate(int space, Addr start, Addr size, Timeline* stream, Owner owner, Id site = 0, Id name = 0,
                  bool fresh = false, Key host = 0, bool* leftover = nullptr) {
    Timeline& line = stream ? *stream : host_of(host);
    if (leftover) *leftover = false;
    if (!size) return nullptr;
    say(TapeEntry::allocate, space, start, size, stream ? stream->id : 0, owner, site, fresh, host);
    Blocks& blocks = blocks_of(space);
    Shadow& shadow = shadow_of(space);
    if (threads_)
      blocks.overlapping(start, start + size, [&](Block& before) {
        if (before.ended && before.freed_clock.size()) host_of(host).learn(0, 0, before.freed_clock);
      });
    Block* again = blocks.at(start);
    if (again && !fresh && owner != Owner::driver && again->stop == start + size && again->owner == owner && !again->graph && captures_.empty()) {
      // a loop's next array: the block's one cell was last used by the stream that is given it, and nobody else has it
      Cell* cell = shadow.at(start);
      if (cell && again->refs == 1u + (cell->block.get() == again) && only(*cell, *again) && own(*cell, line)) {
        cell->write = cell->read = Record();
        cell->block = Ref<Block>(again);
        again->ended = false;
        again->flags = 0;
        if (again->timeline.get() != &line) again->timeline = Ref<Timeline>(&line);
        again->site = site;
        again->freed_site = 0;
        again->freed_clock = Clock();
        again->name = name;
        again->recorded.clear();
        return again;
      }
    }
    const Ref<Block> block(new Block());
    block->space = space;
    block->start = start;
    block->stop = start + size;
    block->owner = owner;
    block->timeline = Ref<Timeline>(&line);
    block->site = site;
    block->name = name;
    if (fresh || owner == Owner::driver) forget_block(space, start, size);
    blocks.add(block);
    Cell* cell = shadow.at(start);
    if (cell && only(*cell, *block) && own(*cell, line)) {
      cell->write = cell->read = Record();
      cell->block = block;
    } else {
      hand_out(shadow, block, line, host_of(host), leftover);
    }
    if (!captures_.empty()) {
      if (line.capture) block->graph = line.capture->graph->key;
      for (auto& capture : captures_) {
        Core& inner = *capture->program;
        auto taken = stream ? capture->inner.find(stream->id) : capture->inner.end();
        Timeline* its = taken == capture->inner.end() ? nullptr : taken->second;
        inner.hand_out(inner.shadow_of(space), block, its, its ? inner.host_ : nullptr, nullptr);
      }
    }
    return block.get();
  }

  // A block that was handed out before the program began, or by who did not say so: what was seen of it stays.
  Block* adopt(int space, Addr start, Addr size, Timeline& line, Owner owner) {
    Blocks& blocks = blocks_of(space);
    if (Block* known = blocks.at(start)) return known;
    const Ref<Block> block(new Block());
    block->space = space;
    block->start = start;
    block->stop = start + size;
    block->owner = owner;
    block->timeline = Ref<Timeline>(&line);
    blocks.add(block);
    std::vector<Cell*> cells;
    shadow_of(space).inside(start, start + size, cells);
    for (Cell* cell : cells) cell->block = block;
    return block.get();
  }

  // The block goes back to its arena.
  void free(int space, Addr start, Id site = 0, Key host = 0) {
    Block* block = blocks_of(space).at(start);
    if (!block || block->ended) return;
    say(TapeEntry::free, space, start, site);
    block->ended = true;
    block->freed_site = site;
    if (threads_) {  // who is given it next comes after, by the pool's lock
      Timeline& freeing = host_of(host);
      freeing.shown = true;
      block->freed_clock = freeing.clock;
      block->freed_clock.set(freeing.id, freeing.count);
    }
    if (block->owner == Owner::driver) {
      forget_block(space, start, block->stop - start);
    } else if (!block->recorded.empty()) {
      take_back(shadow_of(space), *block);
    }
  }

  void record_stream(int space, Addr start, Timeline& line) {
    Addr end;
    Block* block = blocks_of(space).owner(start, &end);
    if (!block || block->ended) return;
    for (auto& each : block->recorded)
      if (each.get() == &line) return;
    say(TapeEntry::record_stream, space, start, line.id);
    block->recorded.emplace_back(&line);
  }

  // The pool returned the addresses to the driver: whatever was unordered there is clean.
  void release_block(int space, Addr start, Addr size) {
    say(TapeEntry::release_block, space, start, size);
    forget_block(space, start, size);
  }
  void forget_block(int space, Addr start, Addr size) {
    blocks_of(space).remove(start, start + size);
    Shadow& shadow = shadow_of(space);
    std::vector<Cell*> gone;
    shadow.inside(start, start + size, gone);
    erase(shadow, gone);
  }

  // The block that holds an address.
  Block* block_at(int space, Addr address) {
    Addr end;
    return blocks_of(space).owner(address, &end);
  }

  // The live block of any device that holds an address; nullptr: there is none.
  Block* device_block(Addr address) {
    Addr end;
    for (auto& [space, blocks] : *blocks_)
      if (Block* block = space >= 0 ? blocks.owner(address, &end) : nullptr; block && !block->ended) return block;
    return nullptr;
  }

  bool any_block(int space, Addr start, Addr stop) {
    Addr end;
    return blocks_of(space).owner(start, &end) || end < stop;
  }

  template <class F>
  void each_block(F&& visit) {
    for (auto& [space, blocks] : *blocks_) blocks.each(visit);
  }

  // -- captures ------------------------------------------------------------------------------------------------------

  bool capture_begin(Timeline& line, CaptureMode mode, bool private_pool, Key host = 0, Id site = 0) {
    if (line.kind == Kind::legacy) return violation(Violation::begin_on_legacy, line, nullptr, 0, site);
    if (line.capture) return violation(Violation::begin_twice, line, nullptr, 0, site);
    Graph& graph = new_graph(private_pool, site);
    say(TapeEntry::capture_begin, line.id, mode, private_pool, host, site, graph.key);
    auto capture = std::make_unique<Capture>();
    capture->graph = &graph;
    capture->program = std::make_unique<Core>();
    capture->program->blocks_ = blocks_;
    capture->program->outer_ = this;
    capture->origin = &line;
    capture->mode = mode;
    capture->host = host;
    capture->thread = std::this_thread::get_id();
    captures_.push_back(std::move(capture));
    join(*captures_.back(), line);
    return true;
  }

  // The graph whose capture began last is of somebody who sees to the order of the launches himself.
  void manage_graph() {
    if (!captures_.empty()) captures_.back()->graph->managed = true;
  }

  // The capture that began on the stream ends. The graph's `reports` are for the caller to take.
  Graph& capture_end(Timeline& line, Id site = 0) {
    say(TapeEntry::capture_end, line.id, site);
    Capture* capture = line.capture;
    if (!capture) return new_graph(false, site);
    Graph& graph = *capture->graph;
    if (&line != capture->origin) {
      violation(Violation::end_elsewhere, line, capture->origin, 0, site);
    }
    Timeline& tip = inner_of(*capture->origin);
    for (Timeline* member : capture->members) {
      Timeline& its = inner_of(*member);
      if (member != capture->origin && !tip.knows(its.id, its.count))
        violation(Violation::unjoined, *member, capture->origin, 0, site);
    }
    for (auto& report : reports) graph.reports.push_back(std::move(report));
    reports.clear();
    for (Timeline* member : capture->members) member->capture = nullptr;
    captures_.erase(std::find_if(captures_.begin(), captures_.end(), [&](auto& each) { return each.get() == capture; }));
    return graph;
  }

  Graph* graph(uint32_t key) {
    auto found = graphs_.find(key);
    return found == graphs_.end() ? nullptr : found->second.get();
  }

  // The caller will not launch it again.
  void drop_graph(uint32_t key) {
    Graph* graph = this->graph(key);
    if (!graph || capture_of(key)) return;
    graph->dropped = true;
    graph->clock = Clock();
    graph->waits.clear();
    graph->records.clear();
    owe();
  }

  bool replay(Graph& graph, Timeline& line, Id operation, Id site, Key host = 0, bool force = false) {
    if (!force) say(TapeEntry::replay, graph.key, line.id, operation, site, host);
    if (line.capture) {
      capture_launch(line, graph, operation, site);
      return true;
    }
    return general(line, host_of(host), nullptr, 0, operation, site, nullptr, force, false, &graph);
  }

  // An operation of a captured stream would wait for the device on the host.
  bool synchronizes(Timeline& line, Id operation, Id site) {
    return line.capture ? violation(Violation::stream_wait, line, line.capture->origin, operation, site) : true;
  }

  // Something that only the collector recognizes is illegal in the capture that a stream takes part in.
  bool refuses(Violation which, Timeline& line, Id operation, Id site) {
    return line.capture ? violation(which, line, line.capture->origin, operation, site) : true;
  }

  // The thread that captures enqueues on a stream that takes no part in it.
  bool enqueues_beside(Timeline& line, Id operation, Id site) {
    if (line.capture || captures_.empty()) return true;
    return violation(Violation::unforked, line, captures_.back()->origin, operation, site);
  }

  // -- questions -----------------------------------------------------------------------------------------------------

  bool recorded(Key event) {
    Ref<Event>* found = events_.find(event);
    return found && *found && (*found)->record.source;
  }
  bool captured(Key event) {
    Ref<Event>* found = events_.find(event);
    return found && *found && (*found)->capture;
  }
  bool waited(Key event, Key host = 0) {
    Ref<Event>* found = events_.find(event);
    if (!found || !*found || !(*found)->record.source || (*found)->capture) return false;
    return host_of(host).knows((*found)->record.source->id, (*found)->record.covered);
  }
  bool any_capture() const { return !captures_.empty(); }
  std::vector<Id> capture_sites() const {
    std::vector<Id> sites;
    for (auto& capture : captures_) sites.push_back(capture->graph->site);
    return sites;
  }
  Timeline& host_of(Key key) {
    if (!threads_) return *host_;
    Timeline*& line = hosts_[key];
    if (!line) {
      line = make(-1, Kind::host);
      line->key = key;
      auto started = objects_.find(key);
      if (started != objects_.end()) {
        line->learn(0, 0, started->second);
        objects_.erase(started);
      }
    }
    return *line;
  }
  Count operations() const { return sequence_; }
  size_t streams() const {  // that had work
    size_t n = 0;
    for (auto& [index, device] : devices_)
      for (const Timeline* line : device->streams) n += line->last != 0;
    return n;
  }
  size_t timelines() const {
    return size_t(std::count_if(lines_.begin(), lines_.end(), [](auto& line) { return bool(line); }));
  }
  size_t hosts_and_locks() const { return hosts_.size() + objects_.size(); }
  size_t events() const { return events_.size(); }
  size_t graphs() const { return graphs_.size(); }
  // visit(operation, site) for all that is remembered: what has these numbers may be reported. A report's numbers are not
  // told apart, so that more may be visited.
  template <class F>
  void remembered(F&& visit) {
    auto numbers = [&](const Report& report) {
      for (int64_t number : report)
        if (number > 0 && number < int64_t(~Id(0))) visit(Id(number), Id(number));
    };
    auto block = [&](const Ref<Block>& its) {
      if (!its) return;
      visit(0, its->site);
      visit(0, its->freed_site);
    };
    auto event = [&](const Ref<Event>& its) {
      if (!its) return;
      visit(0, its->record.site);
      for (auto& each : its->replaced) visit(0, each.site);
    };
    for (auto& shadow : shadows_)
      shadow.each([&](Cell& cell) {
        block(cell.block);
        cell.history([&](const Record& record, Mode, const std::shared_ptr<const View>&, Sure, const Ref<Block>& its) {
          visit(record.operation, record.site);
          block(its);
        });
        return true;
      });
    each_block([&](Block& each) { block(Ref<Block>(&each)); });
    events_.each([&](Key, Ref<Event>& each) { event(each); });
    for (auto& line : lines_) {
      if (!line) continue;
      for (size_t i = 0; i < line->log.size(); ++i) {
        const Wait& wait = line->log[i];
        visit(0, wait.site);
        visit(0, wait.record.site);
        for (auto& each : wait.replaced) visit(0, each.site);
        event(wait.event);
      }
    }
    for (auto& [key, graph] : graphs_) {
      visit(0, graph->site);
      for (auto& each : graph->accesses) {
        visit(each.operation, each.site);
        block(each.block);
      }
      for (auto& report : graph->reports) numbers(report);
      for (auto* all : {&graph->waits, &graph->records})
        for (auto& each : *all) event(each);
    }
    for (auto& capture : captures_) capture->program->remembered(visit);
    for (auto& report : reports) numbers(report);
  }

  // Numbers of operations are given to others.
  void forget_operations() { suspected_.clear(); }

  size_t cells() {
    size_t n = 0;
    for (auto& shadow : shadows_) n += shadow.size();
    return n;
  }
  size_t blocks() {
    size_t n = 0;
    for (auto& [space, blocks] : *blocks_) n += blocks.size();
    return n;
  }

  // -- the end -------------------------------------------------------------------------------------------------------

  // What was freed while a use of it was ordered before neither its allocation stream nor the host, into `reports`.
  void finish();

  // The log and the needs of timelines, by serial number, as `reports.py` reads them.
  Report state(const std::vector<Count>& serials);

 private:
  struct Device {
    Timeline* legacy = nullptr;
    std::vector<Timeline*> streams, blocking, legacy_only;
    Clock folded;  // what streams knew that are gone
  };
  struct State {
    Clock clock;
    Count count = 0;
    bool shown = false;
  };
  struct Planned {
    uint32_t use;
    Mode mode;
    Sure certain;
    int space;
    Addr start, stop;
    std::shared_ptr<const View> view;
    std::vector<Cell*> cells;
  };
  using Plan = std::vector<Planned>;
  enum class Subject { captured, eager, device };

  // -- order

  Timeline* make(int device, Kind kind) {
    Ref<Timeline> made(new Timeline());
    if (!free_ids_.empty()) {
      made->id = free_ids_.back();
      free_ids_.pop_back();
      lines_[made->id] = made;
    } else {
      if (lines_.empty()) lines_.emplace_back();  // id 0 is none
      made->id = Id(lines_.size());
      lines_.push_back(made);
    }
    made->serial = ++serials_();
    made->label = made->id;
    made->device = device;
    made->kind = kind;
    return made.get();
  }

  static Count& serials_() {
    static Count last = 0;
    return last;
  }

  Device& device_of(int index) {
    auto& its = devices_[index];
    if (!its) {
      its = std::make_unique<Device>();
      its->legacy = make(index, Kind::legacy);
      its->legacy->peers = &its->blocking;
      its->legacy_only.push_back(its->legacy);
      its->streams.push_back(its->legacy);
    }
    return *its;
  }

  Timeline& add(Device& device, Timeline* line) {
    device.streams.push_back(line);
    if (line->kind == Kind::blocking || line->kind == Kind::per_thread) {
      device.blocking.push_back(line);
      line->peers = &device.legacy_only;
    }
    return *line;
  }

  void drop_finished(Device& device) {
    auto over = [&](Timeline* stream) {
      if (!stream->gone) return false;
      if (!stream->last && !stream->clock.size()) return true;
      for (auto& [key, host] : hosts_)
        if (!host->knows(stream->id, stream->count)) return false;
      return true;
    };
    auto drop = [&](std::vector<Timeline*>& all) { all.erase(std::remove_if(all.begin(), all.end(), over), all.end()); };
    drop(device.streams);
    drop(device.blocking);
  }

  static bool unsettled(const Timeline& line, const Timeline& host) {
    if (line.clock.of(host.id) < host.count) return true;
    if (!line.peers) return false;
    for (Timeline* peer : *line.peers)
      if (line.clock.of(peer->id) < peer->count || peer->capture) return true;
    return false;
  }

  static void launch(Timeline& line, Timeline& host) {
    if (!unsettled(line, host)) return;
    line.learn(host);
    if (line.peers)
      for (Timeline* peer : *line.peers) line.learn(*peer);
  }

  Event& event_of(Key key) {
    Ref<Event>& event = events_[key];
    if (!event) {
      event = Ref<Event>(new Event());
      event->serial = ++serials_();
    }
    return *event;
  }

  void log(Timeline& line, Event& event, Id site) {
    Wait wait;
    wait.event = Ref<Event>(&event);
    wait.record = event.record;
    wait.replaced = event.replaced;
    wait.sequence = sequence_;
    wait.site = site;
    line.log.push(std::move(wait));
  }

  Timeline* known_host(Key key) {
    auto found = hosts_.find(key);
    return found == hosts_.end() ? nullptr : found->second;
  }

  // -- captures

  Graph& new_graph(bool private_pool, Id site) {
    const uint32_t key = ++last_graph_;
    auto& graph = graphs_[key] = std::make_unique<Graph>();
    graph->key = key;
    graph->private_pool = private_pool;
    graph->site = site;
    return *graph;
  }

  Capture* capture_of(uint32_t graph) {
    for (auto& capture : captures_)
      if (capture->graph->key == graph) return capture.get();
    return nullptr;
  }

  static Timeline& inner_of(Timeline& line) { return *line.capture->inner.at(line.id); }

  static void join(Capture& capture, Timeline& line) {
    line.capture = &capture;
    capture.members.push_back(&line);
    Timeline& its = capture.program->stream(line.device, Kind::non_blocking);
    its.label = line.label;
    capture.inner[line.id] = &its;
  }

  bool allowed(Subject subject, Timeline& line, Key host, Id site) {
    for (auto& capture : captures_) {
      const bool forbids = subject != Subject::eager || capture->mode == CaptureMode::global ||
                           (capture->mode == CaptureMode::thread_local_ && host == capture->host && std::this_thread::get_id() == capture->thread);
      if (forbids) {
        const bool device = subject == Subject::device;
        return violation(device ? Violation::device_wait : Violation::stream_wait, line, capture->origin, 0, site);
      }
    }
    return true;
  }

  void capture_access(Timeline& line, const Use* uses, size_t n, Id operation, Id site, Undo* undo = nullptr) {
    Capture& capture = *line.capture;
    Core& inner = *capture.program;
    Timeline& its = inner_of(line);
    if (!inner.access(its, uses, n, operation, site, 0, false, undo)) {
      for (auto& report : inner.reports) capture.graph->reports.push_back(std::move(report));
      inner.reports.clear();
      inner.access(its, uses, n, operation, site, 0, true, undo);
    }
    if (undo && !undo->graph) {
      undo->graph = capture.graph->key;
      undo->captured = capture.graph->accesses.size();
    }
    for (size_t i = 0; i < n; ++i) add(capture, uses[i], operation, site);
  }

  // A graph is launched on a captured stream: its accesses are those of the other graph too.
  void capture_launch(Timeline& line, const Graph& graph, Id operation, Id site) {
    std::vector<Use> uses;
    std::vector<std::vector<int64_t>> numbers;  // shapes and strides of what is strided
    for (Mode mode : {Mode::reads, Mode::writes})
      for (auto& each : graph.accesses) {
        if (each.mode != mode) continue;
        Use use;
        use.space = each.space;
        use.start = each.start;
        use.stop = each.stop;
        use.mode = mode;
        use.certain = each.certain;
        use.name = each.name;
        if (each.view) {
          std::vector<int64_t> both;
          for (auto& dim : each.view->dims) both.push_back(int64_t(dim.first));
          both.push_back(int64_t(each.view->run));
          use.dims = int(both.size());
          for (auto& dim : each.view->dims) both.push_back(int64_t(dim.second));
          both.push_back(1);
          numbers.push_back(std::move(both));
          use.shape = numbers.back().data();
          use.strides = use.shape + use.dims;
        }
        uses.push_back(use);
      }
    capture_access(line, uses.data(), uses.size(), operation, site);
  }

  // An access the graph will make when launched. What it reads after it has written it, it has from itself.
  void add(Capture& capture, const Use& use, Id operation, Id site) {
    if (use.start >= use.stop) return;
    Block* block = block_at(use.space, use.start);
    auto& filled = capture.filled[{use.space, block}];
    if (use.mode == Mode::reads)
      for (auto& [low, high] : filled)
        if (low <= use.start && use.stop <= high) return;
    for (auto& piece : pieces(use)) {
      auto dims = piece.view ? piece.view->dims : std::vector<std::pair<Addr, Addr>>();
      auto [it, added] = capture.index.try_emplace({use.mode, use.space, piece.start, piece.stop, std::move(dims)}, capture.graph->accesses.size());
      if (added) capture.graph->accesses.emplace_back();
      capture.graph->accesses[it->second] = CapturedAccess{use.space, piece.start, piece.stop, piece.view, use.mode, use.certain,
                                                           operation, site, use.name, Ref<Block>(block)};
    }
    if (use.mode == Mode::writes && !use.dims && use.certain == ALL) {
      const std::pair<Addr, Addr> range{use.start, use.stop};
      if (std::find(filled.begin(), filled.end(), range) == filled.end()) filled.push_back(range);
    }
  }

  // -- accesses

  static bool precedes(const Record& first, Timeline& line, const Timeline& host, Count sequence) {
    if (line.clock.of(first.line) < first.count) return false;
    if (&line == &host || host.clock.of(first.line) < first.count) line.serve(first.line, sequence);
    return true;
  }

  // Whether it is plain that an access conflicts with nothing the cell remembers (partial accesses left out).
  static bool admits(const Cell& cell, Timeline& line, Mode mode, const Timeline& host, Count sequence) {
    if (cell.write && cell.write.line != line.id && !precedes(cell.write, line, host, sequence)) return false;
    if (mode == Mode::reads) return true;
    if (cell.read && cell.read.line != line.id && !precedes(cell.read, line, host, sequence)) return false;
    if (cell.more)
      for (auto& each : cell.more->readers)
        if (each.line != line.id && !precedes(each, line, host, sequence)) return false;
    return true;
  }

  // Whether a launch wrote memory that was allocated in another graph's capture.
  static bool other_graphs(const Cell& cell) {
    return cell.write.graph && cell.block && cell.block->graph && cell.block->graph != cell.write.graph;
  }

  // Whether a launch wrote the memory as a block of its own, and it is read as `block`: the graphs share a pool, and are
  // not launched in the order of their captures (GC-07). A graph that was given the other's array writes it rightly.
  bool overlaid(const Cell& cell, const Ref<Block>& block) {
    if (!cell.write.graph || !block || !block->graph || block->graph == cell.write.graph) return false;
    auto [known, added] = overlaid_.try_emplace({cell.write.graph, block.get(), cell.start}, false);
    if (added)
      if (Graph* graph = this->graph(cell.write.graph); graph && !graph->managed)
        for (auto& each : graph->accesses)
          if (each.mode == Mode::writes && each.start < cell.stop && cell.start < each.stop && each.block != block)
            known->second = true;
    return known->second;
  }

  static std::vector<Piece> pieces(const Use& use) {
    std::vector<Piece> found;
    if (use.start >= use.stop) return found;
    if (!use.dims) {
      found.push_back(Piece{use.start, use.stop, nullptr});
      return found;
    }
    for (int i = 0; i < use.dims; ++i)
      if (!use.shape[i]) return found;
    View view = normalize(use.start, use.dims, use.shape, use.strides, use.itemsize, use.unit);
    if (view.size() <= FEW_RUNS) {
      auto starts = view.starts();
      std::sort(starts.begin(), starts.end());
      for (Addr start : starts) found.push_back(Piece{start, start + view.run, nullptr});
      return found;
    }
    const Addr stop = view.stop();
    found.push_back(Piece{use.start, stop, std::make_shared<const View>(std::move(view))});
    return found;
  }

  void examine(Cell& cell, Timeline& line, uint32_t use, Sure certain, Mode mode, const Piece& piece, const Timeline& host,
               std::vector<Found>& found) {
    const View* view = piece.view.get();
    cell.entries([&](const Record& record, Mode first_mode, const std::shared_ptr<const View>& other, Sure sure, const Ref<Block>& block,
                     Addr low, Addr high) {
      if ((mode == Mode::reads && first_mode == Mode::reads) || record.line == line.id) return;
      if (line.clock.of(record.line) >= record.count) {
        if (host.clock.of(record.line) < record.count && cell.common(view, other.get()) != Tri::no)
          precedes(record, line, host, sequence_);
        return;
      }
      Timeline& first = *lines_[record.line];
      if (first.kind == Kind::host && line.kind == Kind::host) return;  // two host threads: not a matter of streams
      if (line.kind == Kind::function && first.clock.of(line.id)) return;  // enqueued behind a host function that runs only now
      const Tri common = cell.common(view, other.get());
      if (common == Tri::no) return;
      Found each;
      each.first = record;
      each.first_mode = first_mode;
      each.second_mode = mode;
      each.certain = sure && certain && common == Tri::yes;
      // a part that is not known meets for certain only what holds all the bytes in which it may be
      if (sure == PART) each.certain = each.certain && certain == ALL && !view && piece.start <= low && high <= piece.stop;
      each.whole = sure == ALL && !other;
      each.use = use;
      each.start = std::max({cell.start, view ? view->start : cell.start, other ? other->start : cell.start});
      each.stop = std::min({cell.stop, view ? view->stop() : cell.stop, other ? other->stop() : cell.stop});
      each.first_block = block;
      each.block = cell.block;
      found.push_back(std::move(each));
    });
  }

  // Of the conflicts of a part that is not known, from `at` on: those are certain whose first access holds all its bytes.
  static void doubt(std::vector<Found>& found, size_t at, Addr size) {
    for (size_t i = at; i < found.size(); ++i) {
      Addr common = 0;
      for (size_t k = at; k < found.size(); ++k)
        if (found[k].whole && found[k].first.same(found[i].first) && found[k].first_mode == found[i].first_mode)
          common += found[k].stop - found[k].start;
      if (common < size) found[i].certain = false;
    }
  }

  void plan_use(Timeline& line, const Timeline& host, uint32_t index, int space, Mode mode, Sure certain, const Piece& piece,
                Plan& plan, std::vector<Found>* found, const Graph* launched = nullptr) {
    Shadow& shadow = shadow_of(space);
    Planned planned{index, mode, certain, space, piece.start, piece.stop, piece.view, {}};
    Cell* exact = shadow.at(piece.start);
    if (exact && exact->stop == piece.stop) {
      planned.cells.push_back(exact);
    } else {
      if (piece.view)
        shadow.around(piece.start, piece.stop, blocks_of(space), planned.cells);
      else
        shadow.cover(piece.start, piece.stop, blocks_of(space), planned.cells);
      debt_ += planned.cells.size();
    }
    if (found)
      for (Cell* cell : planned.cells)
        if (cell->has_partial() || !admits(*cell, line, mode, host, sequence_))
          examine(*cell, line, index, certain, mode, piece, host, *found);
    if (found && mode == Mode::reads)
      for (Cell* cell : planned.cells) {
        // a graph reads what its capture saw there, even if the memory was handed out again since
        const Ref<Block>& block = launched ? launched->accesses[index].block : cell->block;
        const std::pair<uint32_t, Count> launch{cell->write.graph, cell->write.sequence};
        if (!overlaid(*cell, block) || overlays_.count(launch)) continue;
        if (!trial_) overlays_.insert(launch);
        report_overlaid(*cell, block, line);
      }
    plan.push_back(std::move(planned));
  }

  // Launch edges, examination, verdict, commit. `graph`: this is its launch.
  bool general(Timeline& line, Timeline& host, const Use* uses, size_t n, Id operation, Id site, const State* earlier, bool force,
               bool trial, Graph* graph) {
    const State before = earlier ? *earlier : State{line.clock, line.count, line.shown};
    if (line.kind == Kind::legacy && !captures_.empty())
      for (Timeline* member : device_of(line.device).blocking)
        if (member->capture) return force || violation(Violation::implicit_wait, line, member, operation, site);
    ++sequence_;
    operation_ = operation;
    site_ = site;
    trial_ = trial;
    if (graph) {
      launch(line, host);
      line.learn(0, 0, graph->clock);
      for (auto& event : graph->waits)
        if (event->record.source) line.learn(event->record.source->id, event->record.covered, event->clock);
    } else if (&line != &host && line.kind != Kind::function) {
      launch(line, host);
    }
    Plan plan;
    std::vector<Found> found;
    if (graph) {
      for (Mode mode : {Mode::reads, Mode::writes})
        for (uint32_t i = 0; i < graph->accesses.size(); ++i) {
          auto& each = graph->accesses[i];
          if (each.mode == mode) {
            const size_t before = found.size();
            plan_use(line, host, i, each.space, mode, each.certain, Piece{each.start, each.stop, each.view}, plan, force ? nullptr : &found, graph);
            if (each.certain == PART) doubt(found, before, each.stop - each.start);
          }
        }
    } else {
      for (uint32_t i = 0; i < n; ++i) {
        const size_t before = found.size();
        Addr size = 0;
        for (auto& piece : pieces(uses[i])) {
          plan_use(line, host, i, uses[i].space, uses[i].mode, uses[i].certain, piece, plan, force ? nullptr : &found);
          size += piece.stop - piece.start;
        }
        if (uses[i].certain == PART) doubt(found, before, size);
      }
    }
    Record record{line.id, operation, site, graph ? graph->key : 0, line.count, sequence_};
    if (!force) {
      if (graph) overwritten(*graph, record, trial);
      std::vector<Found> chosen = choose(found, record, trial);
      for (auto& each : chosen) {
        const Again again = again_of(each, record, line, host);
        if (trial || !judged.count(again)) report_pair(each, again, record, line, host, plan, uses, graph);
      }
      if (trial || !reports.empty() || !chosen.empty()) {
        line.clock = before.clock;
        line.count = before.count;
        line.shown = before.shown;
        if (!trial) assume(line, chosen);
        if (trial || !reports.empty()) return reports.empty();
        return general(line, host, uses, n, operation, site, nullptr, true, false, graph);
      }
    }
    if (line.shown) {
      ++line.count;
      line.shown = false;
    }
    record.count = line.count;
    line.last = sequence_;
    if (undo_) {
      for (auto& each : plan)
        for (Cell* cell : each.cells) undo_->save(each.space, *cell);
      undo_->made.push_back(record);
    }
    if (line.kind != Kind::host || threads_) commit(plan, line, record);
    if (graph) {
      line.shown = true;
      graph->clock.merge(line.clock);
      if (graph->clock.of(line.id) < line.count) graph->clock.set(line.id, line.count);
      for (auto& event : graph->records) {
        line.shown = true;
        event->clock = line.clock;
        event->stamp(line, sequence_, site);
      }
    }
    if (debt_ > sweep_at_) sweep();
    return true;
  }

  void commit(Plan& plan, const Timeline& line, const Record& record) {
    bool merged = false;
    std::vector<Cell*> again;
    for (auto& each : plan) {
      Shadow& shadow = shadow_of(each.space);
      std::vector<Cell*>* cells = &each.cells;
      if (merged || each.cells.size() > 1 || each.cells[0]->stop != each.stop) {
        // another use of the same operation may have cut or merged them since
        again.clear();
        shadow.overlapping(each.start, each.stop, again);
        cells = &again;
      }
      if (each.view || each.certain != ALL || line.kind == Kind::host) {
        const bool part = each.certain == PART;
        for (Cell* cell : *cells)
          cell->commit_partial(line, Partial{record, each.mode, each.certain, each.view, cell->block, part ? each.start : 0, part ? each.stop : 0});
      } else if (each.mode == Mode::reads) {
        for (Cell* cell : *cells) cell->commit_read(line, record);
      } else {
        for (Cell* cell : *cells) cell->commit_write(record);
        if (cells->size() > few_cells) {
          shadow.merge(*cells);
          merged = true;
        }
      }
    }
  }

  void restore(const Undo& undo) {
    std::vector<Cell*> cells;
    for (auto& range : undo.saved) {
      Shadow& shadow = shadow_of(range.space);
      cells.clear();
      shadow.overlapping(range.start, range.stop, cells);
      for (Cell* cell : cells) {
        if (cell->has_partial()) {
          auto& partial = cell->more->partial;
          partial.erase(std::remove_if(partial.begin(), partial.end(), [&](auto& each) { return undo.is_made(each.record); }), partial.end());
          cell->tidy();
        }
        const bool written = undo.is_made(cell->write), read = undo.is_made(cell->read);
        if (!written && !read) continue;
        const Undo::Saved* before = nullptr;  // the latest, where cells have been merged
        for (auto& each : undo.saved)
          if (each.space == range.space && each.start < cell->stop && cell->start < each.stop &&
              (!before || before->write.sequence < each.write.sequence))
            before = &each;
        if (written) cell->write = before ? before->write : Record();
        cell->read = before ? before->read : Record();
        if (before && !before->readers.empty()) cell->extra().readers = before->readers;
        cell->tidy();
      }
    }
  }

  // One conflict for each missing edge: certain before possible, a read before a write, the last access first.
  std::vector<Found> choose(std::vector<Found>& found, const Record& second, bool trial) {
    std::vector<Found> best;
    auto rank = [](const Found& pair) { return std::make_tuple(!pair.certain, pair.second_mode == Mode::writes, -int64_t(pair.first.sequence)); };
    for (auto& pair : found) {
      if (!pair.certain && suspected_.count(suspicion(pair, second))) continue;
      const bool reused = pair.first_block != pair.block;
      auto other = std::find_if(best.begin(), best.end(), [&](const Found& each) {
        return each.first.line == pair.first.line && (each.first_block != each.block) == reused;
      });
      if (other == best.end()) {
        best.push_back(std::move(pair));
      } else if (rank(pair) < rank(*other)) {
        *other = std::move(pair);
      } else if (other->first.same(pair.first) && other->use == pair.use && other->second_mode == pair.second_mode) {
        other->start = std::min(other->start, pair.start);  // the same pair in the next cell
        other->stop = std::max(other->stop, pair.stop);
      }
    }
    if (!trial)
      for (auto& pair : best)
        if (!pair.certain) suspected_.insert(suspicion(pair, second));
    // the order of an operation's conflicts does not depend on the cells of its memory
    std::stable_sort(best.begin(), best.end(),
                     [](const Found& a, const Found& b) { return a.first.sequence < b.first.sequence; });
    return best;
  }

  using Suspicion = std::tuple<Id, Id, Id, Id>;
  static Suspicion suspicion(const Found& pair, const Record& second) {
    return {pair.first.line, second.line, pair.first.operation, second.operation};
  }

  Again again_of(const Found& pair, const Record& second, const Timeline& line, const Timeline& host) const;

  void assume(Timeline& line, const std::vector<Found>& chosen) {
    for (auto& pair : chosen)
      if (pair.certain) line.learn(*lines_[pair.first.line]);
  }

  // -- memory

  Shadow& shadow_of(int space) {
    const size_t index = size_t(space + 1);
    if (index >= shadows_.size()) shadows_.resize(index + 1);
    return shadows_[index];
  }
  Blocks& blocks_of(int space) {
    const size_t index = size_t(space + 1);
    if (index >= block_index_.size()) block_index_.resize(index + 1, nullptr);
    if (!block_index_[index]) block_index_[index] = &(*blocks_)[space];
    return *block_index_[index];
  }

  static bool only(const Cell& cell, const Block& block) {  // whether it is the block's one cell
    return cell.stop <= block.stop && (!cell.next || cell.next->start >= block.stop);
  }
  static bool own(const Cell& cell, const Timeline& line) {
    return !cell.more && (!cell.write || cell.write.line == line.id) && (!cell.read || cell.read.line == line.id);
  }

  void hand_out(Shadow& shadow, const Ref<Block>& block, Timeline& line, Timeline& host, bool* leftover) {
    hand_out(shadow, block, &line, &host, leftover);
  }

  // Keep, as its earlier owners' doing, what the block's stream (nullptr: nothing is ordered) is not ordered after.
  void hand_out(Shadow& shadow, const Ref<Block>& block, Timeline* line, Timeline* host, bool* leftover) {
    std::vector<Cell*> cells;
    shadow.inside(block->start, block->stop, cells);
    std::vector<Cell*> empty;
    for (Cell* cell : cells) {
      std::vector<Partial> left;
      if (!line || !own(*cell, *line))
        cell->entries([&](const Record& record, Mode mode, const std::shared_ptr<const View>& view, Sure certain, const Ref<Block>& owner,
                          Addr low, Addr high) {
          if (!line || !ordered(*line, host, record)) left.push_back(Partial{record, mode, certain, view, owner, low, high});
        });
      cell->write = cell->read = Record();
      cell->more.reset();
      cell->block = block;
      if (left.empty()) {
        empty.push_back(cell);
      } else {
        if (leftover) *leftover = true;
        cell->extra().partial = std::move(left);
      }
    }
    if (empty.size() > 1) erase(shadow, empty);  // one is kept: in a loop the next array is as large as the last
  }

  // Whether an access comes before what `line` would do next, given by `host`.
  static bool ordered(const Timeline& line, const Timeline* host, const Record& record) {
    if (line.knows(record.line, record.count) || (host && host->knows(record.line, record.count))) return true;
    if (line.kind != Kind::host && line.peers)
      for (Timeline* peer : *line.peers)
        if (peer->knows(record.line, record.count)) return true;
    return false;
  }

  void take_back(Shadow& shadow, const Block& block) {
    if (block.owner != Owner::torch && block.owner != Owner::pinned) return;
    std::vector<Timeline*> covering;
    for (auto& stream : block.recorded)
      if (stream != block.timeline) covering.push_back(stream.get());
    if (covering.empty()) return;
    std::vector<Cell*> cells, gone;
    shadow.inside(block.start, block.stop, cells);
    for (Cell* cell : cells) {
      const bool left = cell->keep([&](const Record& record) {
        for (Timeline* stream : covering)
          if (stream->knows(record.line, record.count)) return false;
        return true;
      });
      if (!left) gone.push_back(cell);
    }
    erase(shadow, gone);
  }

  static void erase(Shadow& shadow, const std::vector<Cell*>& gone) {
    std::vector<Addr> starts;
    for (Cell* cell : gone) starts.push_back(cell->start);
    for (Addr start : starts) shadow.erase(start);
  }

  // Nothing more is done on a timeline: it goes once nothing mentions it.
  void lose(Timeline& line) {
    line.gone = true;
    gone_.push_back(Ref<Timeline>(&line));
    owe();
  }
  void owe() {
    debt_ += 16;
    if (debt_ > sweep_at_) sweep();
  }

  // A stream is gone, and so is all memory that it used: of what it knew, who waits for it still learns.
  void fold(Device& device, Timeline& line) {
    auto drop = [&](std::vector<Timeline*>& all) {
      auto found = std::find(all.begin(), all.end(), &line);
      const bool there = found != all.end();
      if (there) all.erase(found);
      return there;
    };
    drop(device.streams);
    if (drop(device.blocking)) device.legacy->learn(0, 0, line.clock);
    else device.folded.merge(line.clock);
  }

  // Drop every record that all hosts know, and what is left of lost streams and graphs.
  void sweep() {
    auto wanted = [&](const Record& record) {
      for (auto& [key, host] : hosts_)
        if (!host->knows(record.line, record.count)) return true;
      return false;
    };
    std::vector<bool> mentioned(lines_.size(), false);
    std::set<uint32_t> graphs;
    size_t cells = 0;
    for (auto& shadow : shadows_) {
      shadow.each([&](Cell& cell) {
        if (!cell.keep(wanted)) return false;
        cell.history([&](const Record& record, Mode, const std::shared_ptr<const View>&, bool, const Ref<Block>& block) {
          mentioned[record.line] = true;
          if (record.graph) graphs.insert(record.graph);
          if (block && block->timeline) mentioned[block->timeline->id] = true;
        });
        return true;
      });
      cells += shadow.size();
    }
    each_block([&](Block& block) {
      if (block.timeline) mentioned[block.timeline->id] = true;
      if (block.graph) graphs.insert(block.graph);
    });
    for (auto& [index, device] : devices_) {
      drop_finished(*device);
      for (Timeline* stream : std::vector<Timeline*>(device->streams)) {
        if (!stream->gone || stream->capture) mentioned[stream->id] = true;
        else if (!mentioned[stream->id]) fold(*device, *stream);
      }
    }
    events_.each([&](Key, Ref<Event>& event) {
      if (event && event->capture) graphs.insert(event->capture);
    });
    drop_graphs(graphs);
    std::vector<Ref<Timeline>> still;
    std::vector<Id> lost;
    for (auto& line : gone_) {
      if (mentioned[line->id]) {
        still.push_back(line);
      } else {
        lost.push_back(line->id);
        line->clock = Clock();
        line->served.clear();
        line->log = Log();  // or else each would keep what it waited for
        lines_[line->id] = Ref<Timeline>();
        line->id = 0;
      }
    }
    gone_.swap(still);
    if (!lost.empty()) {
      auto forget = [&](Clock& clock) {
        for (Id id : lost)
          if (clock.of(id)) clock.set(id, 0);
      };
      for (auto& line : lines_) {
        if (!line) continue;
        forget(line->clock);
        for (Id id : lost)
          if (id < line->served.size()) line->served[id] = 0;
      }
      events_.each([&](Key, Ref<Event>& event) {
        if (event) forget(event->clock);
      });
      for (auto& [key, clock] : objects_) forget(clock);
      for (auto& [index, device] : devices_) forget(device->folded);
      each_block([&](Block& block) { forget(block.freed_clock); });
      for (auto& [key, graph] : graphs_) forget(graph->clock);
      suspected_.clear();
      free_ids_.insert(free_ids_.end(), lost.begin(), lost.end());
    }
    if (suspected_.size() > SWEEP_EVERY) suspected_.clear();
    debt_ = 0;
    sweep_at_ = std::max(SWEEP_EVERY, 2 * cells);
  }

  // Forget the graphs that will not be launched again, but those whose launches are remembered.
  void drop_graphs(const std::set<uint32_t>& mentioned) {
    std::set<uint32_t> gone;
    for (auto it = graphs_.begin(); it != graphs_.end();) {
      if (!it->second->dropped || mentioned.count(it->first)) {
        ++it;
        continue;
      }
      gone.insert(it->first);
      it = graphs_.erase(it);
    }
    if (gone.empty()) return;
    for (auto it = overlaid_.begin(); it != overlaid_.end();) it = gone.count(std::get<0>(it->first)) ? overlaid_.erase(it) : std::next(it);
    for (auto it = overlays_.begin(); it != overlays_.end();) it = gone.count(it->first) ? overlays_.erase(it) : std::next(it);
  }

  static constexpr size_t SWEEP_EVERY = 4096;

  // -- reports: integers; reports.py knows the layout (defined in report.hpp)

  bool violation(Violation which, Timeline& subject, Timeline* other, Id operation, Id site);
  void report_pair(const Found& pair, const Again& again, const Record& second, Timeline& line, Timeline& host, const Plan& plan, const Use* uses,
                   Graph* graph);
  void report_latent(const Record& record, Mode mode, const Block& block, Addr start, Addr stop);
  void overwritten(Graph& graph, const Record& second, bool trial);
  void report_overlaid(const Cell& cell, const Ref<Block>& block, Timeline& line);
  void write_captured(Report& out, uint32_t graph, Addr start, Addr stop);
  void write_waits(Report& out, const std::vector<Timeline*>& lines, const std::vector<const Timeline*>& mentioned_too);
  bool needs(const Plan& plan, const Timeline& source, const Timeline& host);

  bool threads_;
  std::map<int, std::unique_ptr<Device>> devices_;
  std::vector<Ref<Timeline>> lines_, gone_;
  std::vector<Id> free_ids_;
  Flat<Ref<Event>> events_{256};
  Timeline* host_ = nullptr;
  std::map<Key, Timeline*> hosts_;
  std::map<Key, Clock> objects_;
  std::vector<Shadow> shadows_;
  std::shared_ptr<std::map<int, Blocks>> blocks_;
  std::vector<Blocks*> block_index_;
  std::vector<std::unique_ptr<Capture>> captures_;
  std::map<uint32_t, std::unique_ptr<Graph>> graphs_;
  uint32_t last_graph_ = 0;
  Core* outer_ = nullptr;
  Count sequence_ = 0;
  std::set<Suspicion> suspected_;
  std::map<std::tuple<uint32_t, const Block*, Addr>, bool> overlaid_;
  std::set<std::pair<uint32_t, Count>> overlays_;  // launches of which it was said
  Id operation_ = 0, site_ = 0;  // of the operation that is examined
  bool trial_ = false;           // nothing of it is kept
  Undo* undo_ = nullptr;         // of the access that is made
  size_t debt_ = 0, sweep_at_ = SWEEP_EVERY;
  std::vector<std::pair<Cell*, Mode>> hit_;
  std::vector<Cell*> near_;
};

}  // namespace streamsafe

#include "report.hpp"
