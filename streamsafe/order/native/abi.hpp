// The core as C functions, for streamsafe/order/native/checker.py. Each takes the core's lock. A timeline is its id, the host 0;
// events, threads and locks are keys of the caller's, above 1. A function that may find conflicts returns whether
// it found none; `ss_reports` has them.
#pragma once
#include <cstring>
#include "core.hpp"

#define SS_API extern "C" __attribute__((visibility("default")))

namespace streamsafe::abi {

// What the calling thread's calls found, until it asks: another thread's calls find their own.
struct Found {
  const Core* core = nullptr;
  std::vector<Report> reports;
};
inline thread_local Found found_here;

// One call: the lock, and in the end what it found.
struct Call {
  Core& core;
  std::lock_guard<std::mutex> lock;

  explicit Call(void* handle) : core(*static_cast<Core*>(handle)), lock(core.mutex) {}
  ~Call() { keep(); }
  void keep() {
    if (core.reports.empty()) return;
    if (found_here.core != &core) found_here = Found{&core, {}};
    for (auto& report : core.reports) found_here.reports.push_back(std::move(report));
    core.reports.clear();
  }
};

// Uses as integers: space, start, stop, mode, certain, name, itemsize, dims, then shape and strides in bytes.
inline std::vector<Use> uses(const int64_t* data, int64_t n) {
  std::vector<Use> found(static_cast<size_t>(n));
  for (auto& use : found) {
    use.space = int(data[0]);
    use.start = Addr(data[1]);
    use.stop = Addr(data[2]);
    use.mode = Mode(data[3]);
    use.certain = Sure(data[4]);
    use.name = Id(data[5]);
    use.itemsize = Addr(data[6]);
    use.dims = int(data[7]);
    use.shape = data + 8;
    use.strides = data + 8 + use.dims;
    data += 8 + 2 * use.dims;
  }
  return found;
}

inline int64_t give(std::vector<Report>& reports, int64_t* out, int64_t room) {
  int64_t size = 1;
  for (auto& report : reports) size += 1 + int64_t(report.size());
  if (size > room) return size;
  *out++ = int64_t(reports.size());
  for (auto& report : reports) {
    *out++ = int64_t(report.size());
    out = std::copy(report.begin(), report.end(), out);
  }
  reports.clear();
  return size;
}
}  // namespace streamsafe::abi

SS_API void* ss_new(int threads) { return new streamsafe::Core(threads != 0); }
SS_API void ss_delete(void* core) { delete static_cast<streamsafe::Core*>(core); }

#define SS_BEGIN                    \
  streamsafe::abi::Call call(c);    \
  streamsafe::Core& core = call.core; \
  (void)core

SS_API uint32_t ss_stream(void* c, int device, int kind) {
  SS_BEGIN;
  return core.stream(device, streamsafe::Kind(kind)).id;
}
SS_API void ss_destroy_stream(void* c, uint32_t id) {
  SS_BEGIN;
  core.destroy_stream(*core.line(id));
}
SS_API uint32_t ss_host_function(void* c, uint32_t stream, uint64_t host) {
  SS_BEGIN;
  return core.host_function(*core.line(stream), host).id;
}
SS_API void ss_event(void* c, uint64_t event) {
  SS_BEGIN;
  core.new_event(event);
}
SS_API void ss_destroy_event(void* c, uint64_t event) {
  SS_BEGIN;
  core.destroy_event(event);
}
SS_API void ss_record(void* c, uint64_t event, uint32_t stream, uint64_t host, uint32_t site, int external) {
  SS_BEGIN;
  core.record(event, *core.line(stream), host, site, external != 0);
}
SS_API int ss_wait(void* c, uint32_t stream, uint64_t event, uint64_t host, uint32_t site, int external, int implicit) {
  SS_BEGIN;
  return core.wait(*core.line(stream), event, host, site, external != 0, implicit != 0);
}
SS_API int ss_synchronize_stream(void* c, uint32_t stream, uint64_t host, uint32_t site) {
  SS_BEGIN;
  return core.synchronize_stream(*core.line(stream), host, site);
}
SS_API int ss_synchronize_event(void* c, uint64_t event, uint64_t host, uint32_t site) {
  SS_BEGIN;
  return core.synchronize_event(event, host, site);
}
SS_API int ss_synchronize_device(void* c, int device, uint64_t host, uint32_t site) {
  SS_BEGIN;
  return core.synchronize_device(device, host, site);
}
SS_API void ss_host_edge(void* c, uint64_t source, uint64_t target) {
  SS_BEGIN;
  core.host_edge(source, target);
}
SS_API void ss_forget_host(void* c, uint64_t host) {
  SS_BEGIN;
  core.forget_host(host);
}
// `how`: 0 access, 1 where it happens although it conflicts, 2 no effect at all
SS_API int ss_access(void* c, uint32_t stream, const int64_t* data, int64_t n, uint32_t operation, uint32_t site, uint64_t host, int how) {
  SS_BEGIN;
  const auto uses = streamsafe::abi::uses(data, n);
  if (!stream) {
    if (how == 2) return core.check_host(uses.data(), uses.size(), operation, site, host);
    return core.host_access(uses.data(), uses.size(), operation, site, host, how == 1);
  }
  streamsafe::Timeline& line = *core.line(stream);
  if (how == 2) return core.check(line, uses.data(), uses.size(), operation, site, host);
  return core.access(line, uses.data(), uses.size(), operation, site, host, how == 1);
}
SS_API void ss_allocate(void* c, int space, uint64_t start, uint64_t size, uint32_t stream, int owner, uint32_t site, uint32_t name, int fresh,
                        uint64_t host) {
  SS_BEGIN;
  core.allocate(space, start, size, stream ? core.line(stream) : nullptr, streamsafe::Owner(owner), site, name, fresh != 0, host);
}
SS_API void ss_free(void* c, int space, uint64_t start, uint32_t site) {
  SS_BEGIN;
  core.free(space, start, site);
}
SS_API void ss_record_stream(void* c, int space, uint64_t start, uint32_t stream) {
  SS_BEGIN;
  core.record_stream(space, start, *core.line(stream));
}
SS_API void ss_release_block(void* c, int space, uint64_t start, uint64_t size) {
  SS_BEGIN;
  core.release_block(space, start, size);
}
// (space, start, stop) of each block that went back; returns how many integers that is
SS_API int64_t ss_freed_blocks(void* c, int64_t* out, int64_t room) {
  SS_BEGIN;
  int64_t size = 0;
  core.each_block([&](streamsafe::Block& block) {
    if (!block.ended) return;
    if (size + 3 <= room) {
      out[size] = block.space;
      out[size + 1] = int64_t(block.start);
      out[size + 2] = int64_t(block.stop);
    }
    size += 3;
  });
  return size;
}
SS_API int ss_capture_begin(void* c, uint32_t stream, int mode, int private_pool, uint64_t host, uint32_t site) {
  SS_BEGIN;
  return core.capture_begin(*core.line(stream), streamsafe::CaptureMode(mode), private_pool != 0, host, site);
}
SS_API void ss_manage_graph(void* c) {
  streamsafe::Core& core = *static_cast<streamsafe::Core*>(c);
  std::lock_guard<std::mutex> guard(core.mutex);
  core.manage_graph();
}
SS_API uint32_t ss_capture_end(void* c, uint32_t stream, uint32_t site) {
  SS_BEGIN;
  return core.capture_end(*core.line(stream), site).key;
}
SS_API int ss_replay(void* c, uint32_t graph, uint32_t stream, uint32_t operation, uint32_t site, uint64_t host, int force) {
  SS_BEGIN;
  streamsafe::Graph* found = core.graph(graph);
  return !found || core.replay(*found, *core.line(stream), operation, site, host, force != 0);
}
SS_API void ss_drop_graph(void* c, uint32_t graph) {
  SS_BEGIN;
  core.drop_graph(graph);
}
SS_API int ss_capturing(void* c, uint32_t stream) {
  SS_BEGIN;
  streamsafe::Timeline* line = core.line(stream);
  return line && line->capture;
}
SS_API int ss_recorded(void* c, uint64_t event) {
  SS_BEGIN;
  return core.recorded(event);
}
SS_API int ss_captured(void* c, uint64_t event) {
  SS_BEGIN;
  return core.captured(event);
}
SS_API int ss_waited(void* c, uint64_t event, uint64_t host) {
  SS_BEGIN;
  return core.waited(event, host);
}
SS_API uint64_t ss_epoch(void* c, uint32_t stream) {
  SS_BEGIN;
  return core.line(stream)->count;
}
SS_API int ss_passed(void* c, uint32_t stream, uint64_t count, uint64_t host) {
  SS_BEGIN;
  return core.host_of(host).clock.of(stream) >= count;
}
SS_API void ss_finish(void* c) {
  SS_BEGIN;
  core.finish();
}
// Each report as its length and its integers, after how many there are. Returns how much room that takes; with less room
// nothing is taken. `graph`: what was found in that capture.
SS_API int64_t ss_reports(void* c, uint32_t graph, int64_t* out, int64_t room) {
  SS_BEGIN;
  streamsafe::Graph* found = graph ? core.graph(graph) : nullptr;
  if (found) return streamsafe::abi::give(found->reports, out, room);
  call.keep();
  streamsafe::abi::Found& here = streamsafe::abi::found_here;
  if (here.core != &core) here = streamsafe::abi::Found{&core, {}};
  return streamsafe::abi::give(here.reports, out, room);
}
SS_API int64_t ss_state(void* c, const uint64_t* serials, int64_t n, int64_t* out, int64_t room) {
  SS_BEGIN;
  const auto state = core.state(std::vector<streamsafe::Count>(serials, serials + n));
  if (int64_t(state.size()) <= room) std::copy(state.begin(), state.end(), out);
  return int64_t(state.size());
}
// The answer to a conflict of this number is known. 0: there are too many such numbers.
SS_API int ss_judged(void* c, uint64_t number) {
  SS_BEGIN;
  return core.judged.add(number);
}
SS_API void ss_forget_judged(void* c) {
  SS_BEGIN;
  core.judged.clear();
}
// (number, count) of the conflicts that came again since the last time; returns how many integers that is
SS_API int64_t ss_repeats(void* c, int64_t* out, int64_t room) {
  SS_BEGIN;
  const auto size = int64_t(2 * core.judged.came());
  if (size > room) return size;
  core.judged.take([&](uint64_t number, uint64_t count) {
    *out++ = int64_t(number);
    *out++ = int64_t(count);
  });
  return size;
}
// What the calling thread allows from now on; returns what it did before.
SS_API uint64_t ss_allow(uint64_t number) { return std::exchange(streamsafe::Allowed::here(), number); }
// Ranges of memory, start and stop, over which races are meant.
SS_API void ss_meant(const uint64_t* ranges, int64_t n) {
  std::vector<std::pair<uint64_t, uint64_t>> all;
  for (int64_t i = 0; i < n; ++i) all.emplace_back(ranges[2 * i], ranges[2 * i + 1]);
  streamsafe::Allowed::set(std::move(all));
}
SS_API int64_t ss_capture_sites(void* c, int64_t* out, int64_t room) {
  SS_BEGIN;
  const auto sites = core.capture_sites();
  for (size_t i = 0; i < sites.size() && int64_t(i) < room; ++i) out[i] = sites[i];
  return int64_t(sites.size());
}
// From now on operations are recorded, or no more.
SS_API void ss_tape(void* c, int on) {
  SS_BEGIN;
  core.taping = on != 0;
  core.clear_tape();
}
// What was recorded, which is then forgotten.
SS_API int64_t ss_take_tape(void* c, int64_t* out, int64_t room) {
  SS_BEGIN;
  const auto size = int64_t(core.tape.size());
  if (size <= room) {
    std::copy(core.tape.begin(), core.tape.end(), out);
    core.clear_tape();
  }
  return size;
}
// `what`: 0 cells, 1 blocks, 2 operations so far, 3 streams that had work, 4 timelines, 5 host threads and what hands on
// to one what another knew, 6 events, 7 graphs
SS_API int64_t ss_size(void* c, int what) {
  SS_BEGIN;
  switch (what) {
    case 0: return int64_t(core.cells());
    case 1: return int64_t(core.blocks());
    case 2: return int64_t(core.operations());
    case 3: return int64_t(core.streams());
    case 4: return int64_t(core.timelines());
    case 5: return int64_t(core.hosts_and_locks());
    case 6: return int64_t(core.events());
    default: return int64_t(core.graphs());
  }
}

#undef SS_BEGIN
