// What the core says of a conflict, as integers; streamsafe/order/native/reports.py is the reader of exactly this.
//
// A list is its length and its entries. A timeline is its serial number, 0 for none, and described once in the list of
// lines; so is an event. Ids of names and sites are the caller's.
#pragma once
#include "core.hpp"

namespace streamsafe {
namespace detail {

inline int64_t serial(const Timeline* line) { return line ? int64_t(line->serial) : 0; }

inline void write(Report& out, const Record& record, const Timeline* line) {
  out.insert(out.end(), {serial(line), int64_t(record.operation), int64_t(record.site), int64_t(record.graph), int64_t(record.count),
                         int64_t(record.sequence)});
}

inline void write(Report& out, const Block* block) {
  out.push_back(block != nullptr);
  if (!block) return;
  out.insert(out.end(), {block->space, int64_t(block->start), int64_t(block->stop), int64_t(block->owner), serial(block->timeline.get()),
                         block->ended, int64_t(block->site), int64_t(block->freed_site), int64_t(block->name), int64_t(block->graph),
                         int64_t(block->flags)});
}

inline void write(Report& out, const Recorded& record) {
  out.insert(out.end(), {serial(record.source.get()), int64_t(record.covered), int64_t(record.sequence), int64_t(record.site),
                         int64_t(record.idle_since)});
}

}  // namespace detail

// The logs of some timelines: all timelines that they mention, the events, the waits, whom each needed.
inline void Core::write_waits(Report& out, const std::vector<Timeline*>& lines, const std::vector<const Timeline*>& mentioned_too) {
  std::vector<const Timeline*> mentioned = mentioned_too;
  std::vector<const Event*> events;
  auto mention = [](auto& list, auto* each) {
    if (each && std::find(list.begin(), list.end(), each) == list.end()) list.push_back(each);
  };
  auto record = [&](const Recorded& each) { mention(mentioned, static_cast<const Timeline*>(each.source.get())); };
  for (Timeline* line : lines) {
    mention(mentioned, static_cast<const Timeline*>(line));
    for (size_t i = 0; i < line->log.size(); ++i) {
      const Wait& wait = line->log[i];
      record(wait.record);
      for (auto& each : wait.replaced) record(each);
      if (!wait.event) continue;
      mention(events, static_cast<const Event*>(wait.event.get()));
      record(wait.event->record);
    }
    for (Id id = 1; id < line->served.size(); ++id)
      if (line->served[id] && id < lines_.size() && lines_[id]) mention(mentioned, static_cast<const Timeline*>(lines_[id].get()));
  }
  out.push_back(int64_t(mentioned.size()));
  for (const Timeline* line : mentioned)
    out.insert(out.end(), {detail::serial(line), int64_t(line->label), int64_t(line->kind),
                           line->kind == Kind::host ? int64_t(line->key) : line->device, int64_t(line->last)});
  out.push_back(int64_t(events.size()));
  for (const Event* event : events) {
    out.insert(out.end(), {int64_t(event->serial), int64_t(event->capture)});
    detail::write(out, event->record);
  }
  out.push_back(int64_t(lines.size()));
  for (Timeline* line : lines) {
    out.insert(out.end(), {detail::serial(line), int64_t(line->log.size())});
    for (size_t i = 0; i < line->log.size(); ++i) {
      const Wait& wait = line->log[i];
      out.insert(out.end(), {int64_t(wait.event ? wait.event->serial : 0), wait.device, int64_t(wait.sequence), int64_t(wait.site)});
      detail::write(out, wait.record);
      out.push_back(int64_t(wait.replaced.size()));
      for (auto& each : wait.replaced) detail::write(out, each);
    }
    const size_t at = out.size();
    out.push_back(0);
    for (Id id = 1; id < line->served.size(); ++id) {
      if (!line->served[id] || id >= lines_.size() || !lines_[id]) continue;
      out.insert(out.end(), {detail::serial(lines_[id].get()), int64_t(line->served[id])});
      ++out[at];
    }
  }
}

inline Report Core::state(const std::vector<Count>& serials) {
  std::vector<Timeline*> lines;
  for (auto& line : lines_)
    if (line && std::find(serials.begin(), serials.end(), line->serial) != serials.end()) lines.push_back(line.get());
  Report out;
  write_waits(out, lines, {});
  return out;
}

inline void Core::write_captured(Report& out, uint32_t key, Addr start, Addr stop) {
  Graph* graph = this->graph(key);
  out.push_back(graph ? int64_t(key) : 0);
  if (!graph) return;
  for (auto& each : graph->accesses) {
    if (each.start >= stop || start >= each.stop) continue;
    out.insert(out.end(), {1, int64_t(each.operation), int64_t(each.mode), int64_t(each.site)});
    return;
  }
  out.push_back(0);
}

inline bool Core::violation(Violation which, Timeline& subject, Timeline* other, Id operation, Id site) {
  Report out{int64_t(ReportKind::violation), int64_t(which), subject.kind == Kind::host,
             int64_t(subject.kind == Kind::host ? subject.key : subject.label), int64_t(other ? other->label : 0), int64_t(operation),
             int64_t(site)};
  const std::vector<Id> begun = (outer_ ? outer_ : this)->capture_sites();
  out.push_back(int64_t(begun.size()));
  for (Id each : begun) out.push_back(int64_t(each));
  reports.push_back(std::move(out));
  return false;
}

inline bool Core::needs(const Plan& plan, const Timeline& source, const Timeline& host) {
  std::vector<Cell*> cells;
  for (auto& each : plan) {
    cells.clear();
    shadow_of(each.space).overlapping(each.start, each.stop, cells);  // another use of the operation may have cut them
    for (Cell* cell : cells) {
      bool found = false;
      cell->history([&](const Record& record, Mode mode, const std::shared_ptr<const View>& view, bool, const Ref<Block>&) {
        found = found || (record.line == source.id && !(mode == Mode::reads && each.mode == Mode::reads) &&
                          !host.knows(source.id, record.count) && cell->common(each.view.get(), view.get()) != Tri::no);
      });
      if (found) return true;
    }
  }
  return false;
}

// What decides under which code a pair is told is hashed: both places, the memory's owners and marks. Of what decides
// whether it is suppressed, also the waits since the first access (one that misses it has a code of its own), where the
// memory was allocated (by which it is named), and what the calling thread allows.
inline Again Core::again_of(const Found& pair, const Record& second, const Timeline& line, const Timeline& host) const {
  const Timeline& source = *lines_[pair.first.line];
  Again again;
  auto add = [](uint64_t& hash, std::initializer_list<uint64_t> values) {
    for (uint64_t value : values) hash = ((hash ^ value) * 0x9E3779B97F4A7C15ull) ^ (hash >> 29);
  };
  add(again.places, {pair.first.operation, pair.first.site, pair.first.graph, second.operation, second.site, second.graph, uint64_t(pair.first_mode),
                     uint64_t(pair.second_mode), pair.certain, pair.first_block != pair.block, uint64_t(source.kind), uint64_t(line.kind)});
  for (const Block* block : {pair.first_block.get(), pair.block.get()})
    add(again.places, {block ? uint64_t(block->owner) + 1 : 0, block ? block->flags : 0u});
  again.all = again.places;
  for (const Block* block : {pair.first_block.get(), pair.block.get()}) add(again.all, {block ? block->site : 0});
  add(again.all, {Allowed::here(), Allowed::meant(pair.start, pair.stop)});
  for (const Timeline* who : {&line, &host, &source})
    for (size_t i = who->log.size(); i-- > 0 && who->log[i].sequence >= pair.first.sequence;) {
      const Wait& wait = who->log[i];
      const Timeline* whose = wait.record.source.get();
      const bool later = wait.event && wait.event->record.sequence > wait.sequence;
      add(again.all, {wait.site, wait.record.site, uint64_t(wait.device + 1), wait.replaced.size(), whose == &source, whose == &line, later,
                      wait.record.covered >= pair.first.count, wait.record.idle_since < pair.first.sequence,
                      whose && whose->id < who->served.size() && who->served[whose->id] > wait.sequence});
    }
  return again;
}

inline void Core::report_pair(const Found& pair, const Again& again, const Record& second, Timeline& line, Timeline& host, const Plan& plan,
                              const Use* uses, Graph* graph) {
  Timeline& source = *lines_[pair.first.line];
  Report out{int64_t(ReportKind::pair), pair.certain};
  detail::write(out, pair.first, &source);
  out.push_back(int64_t(pair.first_mode));
  detail::write(out, second, &line);
  const int space = graph ? graph->accesses[pair.use].space : uses[pair.use].space;
  const Id name = graph ? graph->accesses[pair.use].name : uses[pair.use].name;
  out.insert(out.end(), {int64_t(pair.second_mode), graph ? -1 : int64_t(pair.use), int64_t(name), space, int64_t(pair.start), int64_t(pair.stop)});
  const bool reused = pair.first_block != pair.block;
  detail::write(out, pair.first_block.get());
  detail::write(out, pair.block.get());
  out.push_back(reused);
  out.push_back(detail::serial(&host));
  write_captured(out, pair.first.graph, pair.start, pair.stop);
  write_captured(out, second.graph, pair.start, pair.stop);
  std::vector<Timeline*> lines{&line};
  for (Timeline* each : {&host, &source})
    if (std::find(lines.begin(), lines.end(), each) == lines.end()) lines.push_back(each);
  std::vector<const Timeline*> owners;
  for (const Block* block : {pair.first_block.get(), pair.block.get()})
    if (block) owners.push_back(block->timeline.get());
  write_waits(out, lines, owners);
  std::vector<const Timeline*> asked;
  for (Timeline* waiter : {&line, &host})
    for (size_t i = 0; i < waiter->log.size(); ++i) {
      const Timeline* each = waiter->log[i].record.source.get();
      if (each && each->id && std::find(asked.begin(), asked.end(), each) == asked.end()) asked.push_back(each);
    }
  const size_t at = out.size();
  out.push_back(0);
  for (const Timeline* each : asked) {
    if (!needs(plan, *each, host)) continue;
    out.push_back(detail::serial(each));
    ++out[at];
  }
  out.insert(out.end(), {int64_t(again.places), int64_t(again.all)});
  reports.push_back(std::move(out));
}

inline void Core::report_latent(const Record& record, Mode mode, const Block& block, Addr start, Addr stop) {
  Report out{int64_t(ReportKind::latent)};
  detail::write(out, record, lines_[record.line].get());
  out.push_back(int64_t(mode));
  detail::write(out, &block);
  out.insert(out.end(), {int64_t(start), int64_t(stop)});
  write_waits(out, {}, {lines_[record.line].get(), block.timeline.get()});
  reports.push_back(std::move(out));
}

inline void Core::finish() {
  std::set<std::pair<Id, const Timeline*>> reported;
  for (auto& shadow : shadows_)
    shadow.each([&](Cell& cell) {
      cell.history([&](const Record& record, Mode mode, const std::shared_ptr<const View>& view, bool certain, const Ref<Block>& block) {
        if (!block || !block->ended || !certain || record.graph) return;
        if (const Graph* owner = block->graph ? graph(block->graph) : nullptr; owner && owner->private_pool) return;  // only its captures reuse it (GC-23)
        const std::pair<Id, const Timeline*> pair{record.line, block->timeline.get()};
        if (reported.count(pair)) return;
        if (ordered(*block->timeline, nullptr, record)) return;
        for (auto& [key, host] : hosts_)
          if (host->knows(record.line, record.count)) return;
        reported.insert(pair);
        const Addr low = view ? std::max(cell.start, view->start) : cell.start;
        const Addr high = view ? std::min(cell.stop, view->stop()) : cell.stop;
        report_latent(record, mode, *block, low, high);
      });
      return true;
    });
}

inline void Core::report_overlaid(const Cell& cell, const Ref<Block>& block, Timeline& line) {
  Report out{int64_t(ReportKind::overlaid)};
  detail::write(out, cell.write, lines_[cell.write.line].get());
  detail::write(out, Record{line.id, operation_, site_, 0, line.count, sequence_}, &line);
  out.insert(out.end(), {block->space, int64_t(cell.start), int64_t(cell.stop)});
  detail::write(out, block.get());
  write_captured(out, cell.write.graph, cell.start, cell.stop);
  write_waits(out, {}, {lines_[cell.write.line].get(), &line, block->timeline.get()});
  reports.push_back(std::move(out));
}

// The graph's memory that was freed since its capture and now is somebody else's (GC-06, GP-13).
inline void Core::overwritten(Graph& graph, const Record& second, bool trial) {
  for (auto& each : graph.accesses) {
    const Block* dead = each.block.get();
    if (!dead || !dead->ended || graph.reported.count(dead)) continue;
    if (graph.private_pool && dead->graph == graph.key) continue;
    // what a private pool gives to a later capture is a matter of the order of launches (GC-07)
    const Graph* owner = dead->graph ? this->graph(dead->graph) : nullptr;
    const bool pooled = owner && owner->private_pool;
    Block* live = nullptr;
    blocks_of(each.space).overlapping(each.start, each.stop, [&](Block& block) {
      if (!live && !block.ended && block.graph != graph.key && !(pooled && block.graph)) live = &block;
    });
    if (!live) continue;
    if (!trial) graph.reported.insert(dead);
    const Addr start = std::max(each.start, live->start), stop = std::min(each.stop, live->stop);
    std::vector<Cell*> cells;
    shadow_of(each.space).overlapping(start, stop, cells);
    Record last;
    Mode mode = Mode::reads;
    for (Cell* cell : cells)
      cell->history([&](const Record& record, Mode what, const std::shared_ptr<const View>&, bool, const Ref<Block>& block) {
        if (block.get() != live || (last && record.sequence <= last.sequence)) return;
        last = record;
        mode = what;
      });
    Report out{int64_t(ReportKind::overwritten)};
    detail::write(out, second, lines_[second.line].get());
    out.insert(out.end(), {int64_t(each.mode), int64_t(each.name), each.space, int64_t(each.start), int64_t(each.stop)});
    detail::write(out, dead);
    detail::write(out, live);
    out.push_back(bool(last));
    if (last) {
      detail::write(out, last, lines_[last.line].get());
      out.push_back(int64_t(mode));
    }
    write_captured(out, graph.key, start, stop);
    std::vector<const Timeline*> owners{lines_[second.line].get(), dead->timeline.get(), live->timeline.get()};
    if (last) owners.push_back(lines_[last.line].get());
    write_waits(out, {}, owners);
    reports.push_back(std::move(out));
  }
}

}  // namespace streamsafe
