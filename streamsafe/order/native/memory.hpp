// Memory as byte ranges: cells with a history, and the blocks that pools hand out. As streamsafe/order/memory.py and
// streamsafe/order/pools.py.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <vector>
#include "clocks.hpp"
#include "flat.hpp"
#include "views.hpp"

namespace streamsafe {

enum class Mode : uint8_t { reads, writes };
enum class Owner : uint8_t { unknown, cupy, torch, pinned, driver };

constexpr int HOST_SPACE = -1;
constexpr size_t PARTIAL_LIMIT = 32;

// How sure it is that an access touches its bytes: not at all, all of them, or some of them that are not known.
using Sure = uint8_t;
constexpr Sure UNSURE = 0, ALL = 1, PART = 2;

// One operation, as the memory that it touched last remembers it.
struct Record {
  Id line = 0;  // 0: there is none
  Id operation = 0, site = 0;
  uint32_t graph = 0;  // whose launch it is, if any
  Count count = 0, sequence = 0;

  explicit operator bool() const { return line != 0; }
  bool same(const Record& other) const { return line == other.line && sequence == other.sequence; }
};

// One life of some memory, from its allocation to its free.
struct Block {
  uint32_t refs = 0;
  int space = 0;
  Addr start = 0, stop = 0;
  Owner owner = Owner::unknown;
  bool ended = false;
  uint8_t flags = 0;  // the front end's
  Ref<Timeline> timeline;  // the allocation stream; the host for pinned memory
  Id site = 0, freed_site = 0, name = 0;
  uint32_t graph = 0;  // in whose capture it was allocated, if any
  Clock freed_clock;   // what the thread knew that gave it back
  std::vector<Ref<Timeline>> recorded;
};

// An access that does not simply cover its cell: strided, of unknown direction, or by the block's earlier owner.
struct Partial {
  Record record;
  Mode mode = Mode::reads;
  Sure certain = ALL;
  std::shared_ptr<const View> view;  // none: all of the cell
  Ref<Block> block;
  Addr low = 0, high = 0;  // of a PART: the bytes in which it is
};

// An earlier access that the present one is not ordered after, in bytes both touch.
struct Found {
  Record first;
  Mode first_mode = Mode::reads, second_mode = Mode::reads;
  bool certain = true;
  bool whole = true;  // the first access touches all of these bytes
  uint32_t use = 0;
  Addr start = 0, stop = 0;
  Ref<Block> first_block, block;
};

// A range of bytes with one history.
struct Cell {
  struct More {
    std::vector<Record> readers;   // reads that `read` is not ordered after, one for each timeline
    std::vector<Partial> partial;  // what does not cover the cell simply, and what its earlier owners did
  };

  Addr start = 0, stop = 0;
  Cell* next = nullptr;  // by address
  Record write, read;
  std::unique_ptr<More> more;
  Ref<Block> block;

  bool has_partial() const { return more && !more->partial.empty(); }
  bool has_readers() const { return more && !more->readers.empty(); }
  More& extra() {
    if (!more) more = std::make_unique<More>();
    return *more;
  }
  void tidy() {
    if (more && more->readers.empty() && more->partial.empty()) more.reset();
  }

  // visit(record, mode, view, certain, block) for everything it remembers
  template <class F>
  void history(F&& visit) const {
    entries([&](const Record& record, Mode mode, const std::shared_ptr<const View>& view, Sure certain, const Ref<Block>& its, Addr, Addr) {
      visit(record, mode, view, certain, its);
    });
  }
  // likewise visit(..., low, high), which are those of a PART
  template <class F>
  void entries(F&& visit) const {
    static const std::shared_ptr<const View> whole;
    if (write) visit(write, Mode::writes, whole, ALL, block, 0, 0);
    if (read) visit(read, Mode::reads, whole, ALL, block, 0, 0);
    if (!more) return;
    for (auto& each : more->readers) visit(each, Mode::reads, whole, ALL, block, 0, 0);
    for (auto& each : more->partial) visit(each.record, each.mode, each.view, each.certain, each.block, each.low, each.high);
  }

  Tri common(const View* a, const View* b) const {
    if (a && b) return overlap(*a, *b, start, stop);
    if (const View* one = a ? a : b) return touches(*one, start, stop) ? Tri::yes : Tri::no;
    return Tri::yes;
  }

  // Drop what is not wanted. Whether anything is left.
  template <class F>
  bool keep(F&& wanted) {
    if (write && !wanted(write)) write = Record();
    if (more) {
      auto& readers = more->readers;
      readers.erase(std::remove_if(readers.begin(), readers.end(), [&](auto& each) { return !wanted(each); }), readers.end());
    }
    if (read && !wanted(read)) {
      read = Record();
      if (has_readers()) {
        read = more->readers.front();
        more->readers.erase(more->readers.begin());
      }
    }
    if (more) {
      auto& partial = more->partial;
      partial.erase(std::remove_if(partial.begin(), partial.end(), [&](auto& each) { return !wanted(each.record); }), partial.end());
    }
    tidy();
    return write || read || more;
  }

  void commit_read(const Timeline& line, const Record& record) {
    if (!more && (!read || read.line == line.id)) {
      read = record;
      return;
    }
    if (more) {
      auto& readers = more->readers;
      readers.erase(std::remove_if(readers.begin(), readers.end(), [&](auto& each) { return line.knows(each.line, each.count); }), readers.end());
    }
    if (read && !line.knows(read.line, read.count)) extra().readers.push_back(read);
    read = record;
    tidy();
  }

  void commit_write(const Record& record) {
    write = record;
    read = Record();
    more.reset();
  }

  void commit_partial(const Timeline& line, Partial entry);
};

// Two strided accesses of one epoch that lie side by side (a loop over columns), as one.
inline bool joined(const Partial& first, const Partial& second, Partial& result) {
  if (!first.view || !second.view || first.view->dims != second.view->dims || first.mode != second.mode) return false;
  if (first.record.line != second.record.line || first.record.count != second.record.count) return false;
  if (first.certain != second.certain || first.block != second.block || first.view->dims.empty()) return false;
  const bool ordered = first.view->start <= second.view->start;
  const View &low = ordered ? *first.view : *second.view, &high = ordered ? *second.view : *first.view;
  if (low.start + low.run < high.start) return false;
  const Addr run = high.start + high.run - low.start;
  if (run > low.dims.back().second) return false;
  result = second;
  result.view = std::make_shared<const View>(View{low.start, std::max(run, low.run), low.dims});
  return true;
}

inline void Cell::commit_partial(const Timeline& line, Partial entry) {
  std::vector<Partial> kept;
  size_t mine = 0;
  const std::shared_ptr<const View> view = entry.view;  // the entry may become a wider one
  if (more) {
    for (auto& other : more->partial) {
      const bool same_view = (!other.view && !view) || (other.view && view && *other.view == *view);
      if (same_view && other.certain == entry.certain && other.low == entry.low && other.high == entry.high && other.block == block && line.knows(other.record.line, other.record.count) &&
          (other.mode == entry.mode || (entry.mode == Mode::writes && entry.certain)))
        continue;
      Partial both;
      if (joined(other, entry, both)) {
        entry = std::move(both);
        continue;
      }
      mine += other.record.line == line.id;
      kept.push_back(std::move(other));
    }
  }
  if (mine >= PARTIAL_LIMIT) {
    // too many to tell apart: two that stand for all, of which nothing more is said than that they may touch
    bool modes[2] = {false, false};
    modes[size_t(entry.mode)] = true;
    for (auto& other : kept)
      if (other.record.line == line.id) modes[size_t(other.mode)] = true;
    kept.erase(std::remove_if(kept.begin(), kept.end(), [&](auto& other) { return other.record.line == line.id; }), kept.end());
    for (size_t mode = 0; mode < 2; ++mode)
      if (modes[mode]) kept.push_back(Partial{entry.record, Mode(mode), UNSURE, nullptr, block});
  } else {
    kept.push_back(std::move(entry));
  }
  extra().partial = std::move(kept);
}

// The blocks of one address space: the live ones, and of the freed ones those that nothing replaced.
class Blocks {
 public:
  Block* at(Addr start) {
    Block** found = index_.find(start);
    return found ? *found : nullptr;
  }

  // The block that holds an address, and where it ends; without one, where the next begins.
  Block* owner(Addr address, Addr* end) {
    if (Block* exact = at(address)) {
      *end = exact->stop;
      return exact;
    }
    auto after = blocks_.upper_bound(address);
    *end = after == blocks_.end() ? ~Addr(0) : after->first;
    if (after == blocks_.begin()) return nullptr;
    Block* before = std::prev(after)->second.get();
    if (before->stop <= address) return nullptr;
    *end = before->stop;
    return before;
  }

  template <class F>
  void overlapping(Addr start, Addr stop, F&& visit) {
    auto it = blocks_.upper_bound(start);
    if (it != blocks_.begin()) --it;
    for (; it != blocks_.end() && it->first < stop; ++it)
      if (it->second->stop > start) visit(*it->second);
  }

  void add(const Ref<Block>& block) {
    if (Block* before = at(block->start)) {
      if (before->stop == block->stop) {
        before->ended = true;
        blocks_[block->start] = block;
        index_[block->start] = block.get();
        return;
      }
    }
    remove(block->start, block->stop);
    blocks_[block->start] = block;
    index_[block->start] = block.get();
  }

  void remove(Addr start, Addr stop) {
    auto it = blocks_.upper_bound(start);
    if (it != blocks_.begin()) --it;
    while (it != blocks_.end() && it->first < stop) {
      if (it->second->stop <= start) {
        ++it;
        continue;
      }
      it->second->ended = true;
      index_.erase(it->first);
      it = blocks_.erase(it);
    }
  }

  template <class F>
  void each(F&& visit) {
    for (auto& [start, block] : blocks_) visit(*block);
  }

  size_t size() const { return blocks_.size(); }

  void clear() {
    index_.clear();
    blocks_.clear();
  }

 private:
  std::map<Addr, Ref<Block>> blocks_;
  Flat<Block*> index_{256};
};

// What is remembered of one address space: cells that do not overlap.
class Shadow {
 public:
  Cell* at(Addr start) {
    Cell** found = index_.find(start);
    return found ? *found : nullptr;
  }

  // The cells with a byte in [start, stop), lowest first.
  void overlapping(Addr start, Addr stop, std::vector<Cell*>& found) {
    Cell* cell = at(start);
    if (!cell) {
      auto after = cells_.upper_bound(start);
      if (after != cells_.begin() && std::prev(after)->second.stop > start) --after;
      cell = after == cells_.end() ? nullptr : &after->second;
    }
    for (; cell && cell->start < stop; cell = cell->next) found.push_back(cell);
  }

  // The cells in [start, stop), cut at both ends; gaps stay gaps.
  void inside(Addr start, Addr stop, std::vector<Cell*>& found) {
    cut(start);
    cut(stop);
    overlapping(start, stop, found);
  }

  // Cells for exactly [start, stop).
  void cover(Addr start, Addr stop, Blocks& blocks, std::vector<Cell*>& covered) {
    std::vector<Cell*> there;
    inside(start, stop, there);
    Addr at = start;
    for (size_t i = 0; i <= there.size(); ++i) {
      const Addr limit = i < there.size() ? there[i]->start : stop;
      while (at < limit) {
        Addr end;
        Block* block = blocks.owner(at, &end);
        end = std::min(end, limit);
        covered.push_back(&insert(at, end, Ref<Block>(block)));
        at = end;
      }
      if (i < there.size()) {
        covered.push_back(there[i]);
        at = there[i]->stop;
      }
    }
  }

  // Cells that together hold [start, stop), for a view, which says itself which of their bytes it means: nothing is cut,
  // and a gap becomes a cell as large as its block allows.
  void around(Addr start, Addr stop, Blocks& blocks, std::vector<Cell*>& covered) {
    std::vector<Cell*> there;
    overlapping(start, stop, there);
    Addr at = start;
    for (size_t i = 0; i <= there.size(); ++i) {
      const Addr limit = i < there.size() ? there[i]->start : stop;
      while (at < limit) {
        Addr low = at, end;
        Block* block = blocks.owner(at, &end);
        if (block) {
          auto after = cells_.lower_bound(at);
          low = block->start;
          if (after != cells_.begin()) low = std::max(low, std::prev(after)->second.stop);
          if (after != cells_.end()) end = std::min(end, after->first);
        } else {
          end = std::min(end, limit);
        }
        covered.push_back(&insert(low, end, Ref<Block>(block)));
        at = end;
      }
      if (i < there.size()) {
        covered.push_back(there[i]);
        at = there[i]->stop;
      }
    }
  }

  // Make one cell of neighbours that lie in one block; their histories must be the same from here on.
  void merge(std::vector<Cell*>& cells) {
    Cell* last = cells[0];
    for (size_t i = 1; i < cells.size(); ++i) {
      if (cells[i]->block == last->block) {
        last->stop = cells[i]->stop;
        erase(cells[i]->start);
      } else {
        last = cells[i];
      }
    }
  }

  void erase(Addr start) {
    auto it = cells_.find(start);
    if (it != cells_.begin()) std::prev(it)->second.next = it->second.next;
    index_.erase(start);
    cells_.erase(it);
  }

  template <class F>
  void each(F&& visit) {  // visit returns whether the cell stays
    for (auto it = cells_.begin(); it != cells_.end();) {
      if (visit(it->second)) {
        ++it;
        continue;
      }
      if (it != cells_.begin()) std::prev(it)->second.next = it->second.next;
      index_.erase(it->first);
      it = cells_.erase(it);
    }
  }

  size_t size() const { return cells_.size(); }

  void clear() {
    index_.clear();
    cells_.clear();
  }

 private:
  Cell& insert(Addr start, Addr stop, Ref<Block> block) {
    auto it = cells_.emplace(std::piecewise_construct, std::forward_as_tuple(start), std::forward_as_tuple()).first;
    Cell& cell = it->second;
    cell.start = start;
    cell.stop = stop;
    cell.block = std::move(block);
    auto after = std::next(it);
    cell.next = after == cells_.end() ? nullptr : &after->second;
    if (it != cells_.begin()) std::prev(it)->second.next = &cell;
    index_[start] = &cell;
    return cell;
  }

  void cut(Addr at_) {
    if (at(at_)) return;
    auto after = cells_.lower_bound(at_);
    if (after == cells_.begin()) return;
    Cell& lower = std::prev(after)->second;
    if (lower.stop <= at_) return;
    Cell& upper = insert(at_, lower.stop, lower.block);
    lower.stop = at_;
    upper.write = lower.write;
    upper.read = lower.read;
    if (lower.more) upper.more = std::make_unique<Cell::More>(*lower.more);
  }

  std::map<Addr, Cell> cells_;
  Flat<Cell*> index_{256};
};

}  // namespace streamsafe
